package feed

import (
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// event applies one event.
func (p *Publisher) event(e *event.Event) error {
	medium := e.Medium
	if e.Locality == "REMOTE" {
		medium = index.Shared
	}
	at := index.At{Worker: p.w.Worker, Medium: medium}
	if len(p.model.Groups) > 0 {
		at.Group = e.Group
	}
	switch {
	case e.Kind == event.Cleared:
		p.forget()
		return nil
	case p.partial(e):
		p.mu.stats.Passed++
		return nil
	case e.Kind == event.Removed && p.w.Chunks && !p.bound(e.Space):
		p.mu.stats.Passed++
		return nil
	case e.Kind == event.Removed:
		return p.removed(at, e.Hashes)
	}
	return p.stored(at, e)
}

// maxGroup bounds the groups that a publisher is known by.
const maxGroup = 64

// partial reports whether an event is of blocks that the index does not count.
// Removals say no kind of their group, so that stored ones teach it.
func (p *Publisher) partial(e *event.Event) bool {
	kind, known := kinds[e.GroupKind]
	if n := len(p.model.Groups); n > 0 && !p.w.Chunks {
		return !known || e.Group < 0 || e.Group >= n || p.other(e)
	}
	if e.Kind == event.Stored && (!known || kind != index.Full) {
		if e.Group >= 0 && e.Group < maxGroup {
			p.mu.other[e.Group] = true
		}
		return true
	}
	return p.other(e) || p.mu.other[e.Group]
}

// other reports whether an event's blocks are hashed in another way than the model's: of
// images too, or of pairs where the model has none, or the other way round.
func (p *Publisher) other(e *event.Event) bool {
	return e.Extra || len(e.Tokens) > 0 && e.Pairs != (p.model.BlockHash == DynamoEagle)
}

func (p *Publisher) stored(at index.At, e *event.Event) error {
	if len(e.Hashes) == 0 {
		return nil
	}
	if err := p.grouped(e); err != nil {
		return p.refused(err)
	}
	w := &piece{at: at, parent: e.Parent, hashes: e.Hashes}
	w.behind, _ = e.Parent.Hash()
	var err error
	switch {
	case p.w.Chunks && e.ChunkTokens != p.model.ChunkTokens:
		p.mu.stats.Passed++ // the shorter last one of a prompt, or another space's
		return nil
	case p.w.Chunks && !p.bind(e.LoRA, e.Space):
		return p.refused(fmt.Errorf("events of worker %s: %w: %.64q after %.64q; one space of an adapter is counted, so publish from a daemon with one rank of one model, or follow its own socket", p.w.Worker, ErrSpace, e.Space, p.mu.spaces[e.LoRA]))
	case p.w.Chunks:
		w.shard, err = p.model.OpenChunks(p.o.Index, p.w.Tenant, e.LoRA)
	case e.Placeholder():
		return p.add(at, e.Hashes)
	default:
		w.tokens, w.each = e.Tokens, e.BlockTokens
		w.shard, err = p.model.OpenBlocks(p.o.Index, p.w.Tenant, e.Salt, e.LoRA)
	}
	if err != nil {
		return p.refused(err)
	}
	p.mu.shards[w.shard.Name()] = w.shard
	return p.store(w)
}

// maxSpaces bounds the adapters of a publisher.
const maxSpaces = 1024

// bind has the first space of an adapter be the one that counts, and reports
// whether it is this one.
func (p *Publisher) bind(lora, space string) bool {
	first, is := p.mu.spaces[lora]
	if !is && len(p.mu.spaces) < maxSpaces {
		p.mu.spaces[lora] = space
		return true
	}
	return is && first == space
}

// bound reports whether a space is one that counts.
func (p *Publisher) bound(space string) bool {
	for _, first := range p.mu.spaces {
		if first == space {
			return true
		}
	}
	return false
}

// store applies a piece, and those that wait for it. One whose parent is not known
// waits.
func (p *Publisher) store(first *piece) (err error) {
	now := p.o.Now()
	for list := []*piece{first}; len(list) > 0; {
		w := list[0]
		list = list[1:]
		n, failed := w.put()
		p.mu.stats.Blocks += uint64(n)
		switch {
		case errors.Is(failed, index.ErrUnknownParent):
			if w.since.IsZero() {
				w.since = now
			}
			p.mu.stats.Dropped += uint64(p.mu.waiting.add(w, w.since))
		case failed != nil:
			err = errors.Join(err, p.refused(failed))
		}
		for _, h := range w.hashes[:n] {
			list = append(list, p.mu.waiting.below(blockName{w.shard, h})...)
		}
	}
	return err
}

// put stores a piece in its shard.
func (w *piece) put() (int, error) {
	if w.tokens == nil {
		return w.shard.Store(w.at, w.parent, w.hashes)
	}
	return w.shard.Announce(w.at, index.Announcement{Parent: w.parent, Hashes: w.hashes, Tokens: w.tokens, BlockTokens: w.each})
}

// add takes in blocks that are known by the engine's names.
func (p *Publisher) add(at index.At, hashes []uint64) (err error) {
	for _, s := range p.mu.shards {
		n, failed := s.Add(at, hashes)
		if failed != nil {
			err = errors.Join(err, p.refused(failed))
			continue
		}
		p.mu.stats.Blocks += uint64(len(hashes) - n)
	}
	return err
}

// removed takes blocks from all shards of the worker: a removal does not say of
// which salt and adapter they are.
func (p *Publisher) removed(at index.At, hashes []uint64) (err error) {
	for _, s := range p.mu.shards {
		var n int
		var failed error
		if p.w.Chunks {
			n, failed = s.Remove(at, hashes)
		} else {
			n, failed = s.Withdraw(at, hashes)
		}
		if failed != nil {
			err = errors.Join(err, p.refused(failed))
			continue
		}
		p.mu.stats.Blocks += uint64(len(hashes) - n)
		for _, h := range hashes {
			p.mu.waiting.removed(blockName{s, h}, at)
		}
	}
	return err
}
