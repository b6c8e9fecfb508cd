package simulate

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/kvstored/kvstored/internal/replay"
)

// Trace is a trace in memory. Its blocks are numbered in the order in which
// they appear first.
type Trace struct {
	// Skipped counts the lines that were no requests, Bad names the first.
	Skipped int
	Bad     error

	blockTokens  int
	promptTokens int64
	blocks       []uint32 // of all requests
	requests     []request
	parents      []uint32 // block number + 1 of what stands before a block, 0 = nothing
	notTree      error    // names the first line where a block has two parents
	nextUse      func() []uint32
}

type request struct {
	end    int // of its blocks in Trace.blocks; they begin where the one before ends
	tokens int
	answer int // tokens of it
}

// Read reads a trace (see [replay.Requests]) to its end. It fails at the first
// line that is not a request unless skipBad is set.
func Read(r io.Reader, name string, blockTokens int, skipBad bool) (*Trace, error) {
	t := &Trace{blockTokens: blockTokens}
	numbers := make(map[uint64]uint32)
	for req, err := range replay.Lines(r, name, blockTokens) {
		switch {
		case err == nil:
			t.add(&req, name, numbers)
		case skipBad && errors.Is(err, replay.ErrTrace):
			t.Skipped++
			if t.Bad == nil {
				t.Bad = err
			}
		default:
			return nil, err
		}
	}
	if len(t.requests) == 0 {
		return nil, fmt.Errorf("%w: %s: there is no request in it", replay.ErrTrace, name)
	}
	t.nextUse = sync.OnceValue(t.findNextUse)
	return t, nil
}

func (t *Trace) add(req *replay.Request, name string, numbers map[uint64]uint32) {
	parent := uint32(0)
	for _, id := range req.BlockIDs {
		b, known := numbers[id]
		if !known {
			b = uint32(len(t.parents))
			numbers[id] = b
			t.parents = append(t.parents, parent)
		} else if t.parents[b] != parent && t.notTree == nil {
			t.notTree = fmt.Errorf("%w: %s:%d: hash_id %d stands behind other ids than before, so these ids do not stand for prefixes", replay.ErrTrace, name, req.Line, id)
		}
		t.blocks = append(t.blocks, b)
		parent = b + 1
	}
	t.requests = append(t.requests, request{len(t.blocks), req.InputTokens, req.OutputTokens})
	t.promptTokens += int64(req.InputTokens)
}

// CheckTree says where the ids of the trace stop standing for prefixes, or nil.
func (t *Trace) CheckTree() error { return t.notTree }

// Requests is how many requests there are.
func (t *Trace) Requests() int { return len(t.requests) }

// Accesses is how many blocks the requests have, in all.
func (t *Trace) Accesses() int { return len(t.blocks) }

// Distinct is how many different blocks there are.
func (t *Trace) Distinct() int { return len(t.parents) }

// never is the next use of a block that is not used again.
const never = ^uint32(0)

// findNextUse returns, for each access, the next one of the same block.
func (t *Trace) findNextUse() []uint32 {
	next := make([]uint32, len(t.blocks))
	seen := make([]uint32, t.Distinct())
	for i := range seen {
		seen[i] = never
	}
	for i := len(t.blocks) - 1; i >= 0; i-- {
		b := t.blocks[i]
		next[i], seen[b] = seen[b], uint32(i)
	}
	return next
}
