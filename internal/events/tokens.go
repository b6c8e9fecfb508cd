package events

import (
	"slices"
	"sync"

	"github.com/kvstored/kvstored/key"
)

// maxTokenBytes bounds what Tokens keeps: 32 bytes a chunk and 4 a token, which is
// some 60,000 chunks of 256 tokens.
const maxTokenBytes = 64 << 20

// Tokens remembers the tokens of chunks, for events that tell them. The first that
// came are forgotten first.
type Tokens struct {
	mu struct {
		sync.Mutex
		byKey map[key.Key][]uint32
		order []key.Key // as they came; begins at first
		first int
		bytes int
	}
}

// NewTokens makes an empty one.
func NewTokens() *Tokens {
	t := new(Tokens)
	t.mu.byKey = make(map[key.Key][]uint32)
	return t
}

// Note remembers the tokens of all chunks of a prompt. at says token i of it.
func (t *Tokens) Note(c *key.Chain, at func(i int) uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begin := 0
	for i, n := range c.Tokens {
		end := begin + int(n)
		if k := c.Key(i); t.mu.byKey[k] == nil {
			ids := make([]uint32, 0, n)
			for ; begin < end; begin++ {
				ids = append(ids, at(begin))
			}
			t.add(k, ids)
		}
		begin = end
	}
}

func (t *Tokens) add(k key.Key, ids []uint32) {
	t.mu.byKey[k] = ids
	t.mu.order = append(t.mu.order, k)
	for t.mu.bytes += tokenBytes(ids); t.mu.bytes > maxTokenBytes; t.mu.first++ {
		oldest := t.mu.order[t.mu.first]
		t.mu.bytes -= tokenBytes(t.mu.byKey[oldest])
		delete(t.mu.byKey, oldest)
	}
	if t.mu.first > len(t.mu.order)/2 {
		t.mu.order, t.mu.first = slices.Clone(t.mu.order[t.mu.first:]), 0
	}
}

func tokenBytes(ids []uint32) int { return 32 + 4*len(ids) }

// Append appends the tokens of a chunk to dst, if they are known.
func (t *Tokens) Append(dst []uint32, k key.Key) []uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(dst, t.mu.byKey[k]...)
}
