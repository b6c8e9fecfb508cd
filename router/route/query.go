package route

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/index"
)

// Prompt is the prompt of a question: tokens, or the hashes of its blocks.
type Prompt struct {
	Model  string   `json:"model"`
	Tenant string   `json:"tenant,omitempty"`
	Salt   string   `json:"salt,omitempty"`
	LoRA   string   `json:"lora,omitempty"`
	Tokens []uint32 `json:"tokens,omitempty"`

	// Sequence hashes of the engines' blocks, and hashes of the daemons' chunks, where
	// the caller has them instead of tokens; how many tokens there are then.
	Hashes       []Hash `json:"hashes,omitempty"`
	ChunkHashes  []Hash `json:"chunk_hashes,omitempty"`
	PromptTokens int    `json:"prompt_tokens,omitempty"`
}

// Hash is a hash as JSON has it: a whole number, or a string of 16 hexadecimal
// digits or more, of which the first 16 count.
type Hash uint64

// MarshalJSON writes 16 digits.
func (h Hash) MarshalJSON() ([]byte, error) { return fmt.Appendf(nil, `"%016x"`, uint64(h)), nil }

// UnmarshalJSON reads either form.
func (h *Hash) UnmarshalJSON(text []byte) error {
	digits, quoted := strings.CutPrefix(string(text), `"`)
	if !quoted {
		n, err := strconv.ParseUint(digits, 10, 64)
		if err != nil {
			return fmt.Errorf("hash %.40s; write a whole number, or 16 hexadecimal digits or more in quotes", text)
		}
		*h = Hash(n)
		return nil
	}
	b, err := hex.DecodeString(strings.TrimSuffix(digits, `"`))
	if err != nil || len(b) < 8 || len(b) > 64 {
		return fmt.Errorf("hash %.40s; write 16 hexadecimal digits or more", text)
	}
	*h = Hash(binary.BigEndian.Uint64(b))
	return nil
}

// Found is what one worker has of a prompt.
type Found struct {
	ID   string `json:"id"`
	Rank uint32 `json:"rank,omitempty"`
	// Tokens are leading tokens by medium: how many the worker has, each in that
	// medium or a nearer one.
	Tokens [index.Media]int `json:"tokens"`
	// AtLeast says that the worker may have more, as an early exit has it.
	AtLeast bool `json:"at_least,omitempty"`
}

// maxHashes bounds the hashes of a prompt.
const maxHashes = 1 << 18

// query finds a prompt in the index. The answer has all workers of the model and tenant
// that have its beginning, in no order.
func (s *Service) query(p *Prompt, early bool) (tokens int, found []Found, err error) {
	m := s.models[p.Model]
	if m == nil {
		return 0, nil, s.unknown(p.Model)
	}
	if tokens, err = p.check(m); err != nil {
		return 0, nil, err
	}
	o := index.FindOptions{EarlyExit: early}
	var blocks, chunks []index.Match
	if shard := s.shard(m.Blocks(p.Tenant, p.Salt, p.LoRA)); shard != nil {
		if p.Tokens == nil {
			blocks = shard.Find(nil, plain(p.Hashes), o)
		} else if blocks, err = shard.FindTokens(nil, p.Tokens, o); err != nil {
			return 0, nil, err
		}
	}
	if shard := s.shard(m.Chunks(p.Tenant, p.LoRA)); shard != nil {
		hashes := plain(p.ChunkHashes)
		if p.Tokens != nil {
			if hashes, err = m.ChunkHashes(p.Salt, p.Tokens); err != nil {
				return 0, nil, refuse(ErrRequest, "%w", err)
			}
		}
		chunks = shard.Find(nil, hashes, o)
	}
	return tokens, join(blocks, chunks), nil
}

// check reports the first thing that is wrong with a prompt, and how many tokens
// it has.
func (p *Prompt) check(m *feed.Model) (tokens int, err error) {
	switch {
	case p.Tokens != nil && (p.Hashes != nil || p.ChunkHashes != nil || p.PromptTokens != 0):
		return 0, refuse(ErrRequest, "tokens beside hashes; send one of them")
	case len(p.Hashes) > maxHashes || len(p.ChunkHashes) > maxHashes:
		return 0, refuse(ErrTooLarge, "%d hashes and %d of chunks; at most %d each", len(p.Hashes), len(p.ChunkHashes), maxHashes)
	case p.PromptTokens < 0:
		return 0, refuse(ErrRequest, "prompt_tokens is %d", p.PromptTokens)
	case p.Tokens == nil && p.Hashes == nil && p.ChunkHashes == nil:
		return 0, refuse(ErrRequest, "no tokens and no hashes; send what the prompt is")
	}
	for _, text := range []string{p.Tenant, p.Salt, p.LoRA} {
		if len(text) > maxText {
			return 0, refuse(ErrRequest, "a text of %d bytes; use at most %d", len(text), maxText)
		}
	}
	if p.Tokens != nil {
		return len(p.Tokens), nil
	}
	return max(p.PromptTokens, len(p.Hashes)*m.BlockTokens, len(p.ChunkHashes)*m.ChunkTokens), nil
}

// shard is one that is open; nil if none is, as no worker has said anything.
func (s *Service) shard(n index.Name) *index.Shard {
	shard, err := s.index.Shard(n)
	if err != nil {
		return nil
	}
	return shard
}

func plain(all []Hash) []uint64 {
	out := make([]uint64, len(all))
	for i, h := range all {
		out[i] = uint64(h)
	}
	return out
}

// join is what workers have as blocks or as chunks: a prefix may come from either.
func join(lists ...[]index.Match) (all []Found) {
	at := make(map[index.Worker]int)
	for _, list := range lists {
		for i := range list {
			w := list[i].Worker
			n, known := at[w]
			if !known {
				n = len(all)
				at[w] = n
				all = append(all, Found{ID: w.ID, Rank: w.Rank})
			}
			for m := range index.Medium(index.Media) {
				all[n].Tokens[m] = max(all[n].Tokens[m], list[i].Tokens(m))
			}
			all[n].AtLeast = all[n].AtLeast || list[i].AtLeast
		}
	}
	return all
}

// predict notes that a worker that tells nothing will have a prompt.
func (s *Service) predict(w *member, p *Prompt) error {
	if w.told() {
		return nil
	}
	shard, err := w.model.OpenBlocks(s.index, p.Tenant, p.Salt, p.LoRA)
	if err != nil {
		return err
	}
	hashes := plain(p.Hashes)
	if p.Tokens != nil {
		hashes, err = shard.Config().Hash.Append(nil, index.Root, p.Tokens, w.model.BlockTokens)
		if err != nil {
			return err
		}
	}
	if len(hashes) == 0 {
		return nil
	}
	at, parent := index.At{Worker: w.name()}, index.Root
	for piece := range slices.Chunk(hashes, 1<<15) { // the index takes so many at a time
		if _, err = shard.Store(at, parent, piece); err != nil {
			break
		}
		parent = index.After(piece[len(piece)-1])
	}
	if errors.Is(err, index.ErrParent) { // hashes that contradict each other: nothing more is known
		return refuse(ErrRequest, "%w", err)
	}
	return err
}
