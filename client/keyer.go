package client

import (
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// mostKeyed is how many chunks a prompt may have whose keys are computed here: of 4 MiB
// each they are 64 GiB. It bounds the memory of a keyer, too.
const mostKeyed = 16 << 10

// keyers compute the keys of one space as the daemon does: each is one call's at a time.
type keyers struct {
	space key.Space
	info  wire.SpaceInfo
	idle  sync.Pool
}

// keyer makes chains of prompts, and has the memory of the last.
type keyer struct {
	builder *key.Builder
	chain   key.Chain
}

func newSpace(info wire.SpaceInfo, s *key.Space) *Space {
	ks := &keyers{space: *s, info: info}
	ks.space.Tags = slices.Clone(s.Tags)
	return &Space{info: info, keyers: ks}
}

// take is a keyer that holds the chain of p, for give to take back; nil where the keys
// cannot be known here, as in a space that the daemon calls by another id.
func (ks *keyers) take(p *Prompt) *keyer {
	k, _ := ks.idle.Get().(*keyer)
	if k == nil {
		k = ks.make()
	}
	if k == nil || !k.build(p, int(ks.info.ChunkTokens)) {
		ks.give(k)
		return nil
	}
	k.chain.Space, k.chain.Skip = ks.info.ID, p.SkipChunks
	return k
}

func (ks *keyers) give(k *keyer) {
	if k != nil {
		ks.idle.Put(k)
	}
}

func (ks *keyers) make() *keyer {
	b, err := key.NewBuilder(ks.space)
	if err != nil || b.Space() != ks.info.ID || int(ks.info.ChunkTokens) != ks.space.ChunkTokens {
		return nil
	}
	return &keyer{builder: b}
}

// build makes the chain of p. It reports false for a prompt that is too long or that the
// daemon should judge.
func (k *keyer) build(p *Prompt, chunkTokens int) bool {
	o := key.Options{SaveUnfull: p.SaveUnfull, Alone: p.Alone}
	var err error
	switch {
	case p.Grain != 0 || p.SkipChunks < 0:
		return false
	case p.form == wire.FormHashes && len(p.lengths) <= mostKeyed:
		err = k.builder.Hashes(&k.chain, p.width, p.hashes, p.lengths, o)
	case p.form == wire.FormTokens && !p.Alone && len(p.tokens)/chunkTokens < mostKeyed:
		err = k.builder.Tokens(&k.chain, p.tokens, o)
	default:
		return false
	}
	return err == nil && p.SkipChunks < k.chain.Len()
}

// record is the first n chunks of the chain, for the daemon.
func (k *keyer) record(handle uint32, full uint32, n int) wire.Chain {
	ch := wire.Chain{
		Space: handle, Form: wire.FormHashes, Width: uint16(len(key.Hash{})), Hashes: wire.ViewHashes(k.chain.Hashes[:n]),
		Alone: k.chain.Alone, Skip: uint32(k.chain.Skip),
	}
	if last := k.chain.Tokens[n-1]; last != full {
		ch.SaveUnfull, ch.LastTokens = true, last
	}
	return ch
}
