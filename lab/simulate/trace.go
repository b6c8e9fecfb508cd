package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/lab/replay"
)

// Trace is a trace in memory. Its blocks are numbered in the order in which
// they appear first.
type Trace struct {
	// Skipped counts the lines that were no requests, Bad names the first.
	Skipped int
	Bad     error
	// Late counts the lines that came before an earlier one: requests are in the order of
	// their times.
	Late int

	lasts    time.Duration
	noOutput bool // some request says nothing of its answer

	blockTokens  int
	promptTokens int64
	blocks       []uint32 // of all requests
	requests     []request
	parents      []uint32 // block number + 1 of what stands before a block, 0 = nothing
	notTree      error    // names the first line where a block has two parents
	nextUse      func() []uint32
}

type request struct {
	end     int // of its blocks in Trace.blocks; they begin where the one before ends
	tokens  int
	per     int   // tokens of a block
	answer  int   // tokens of it
	session int   // 0 = not known
	millis  int64 // when it came
}

// Reading says how to read a trace.
type Reading struct {
	BlockTokens int
	Unit        time.Duration // of times; 0 = milliseconds
	SkipBad     bool          // pass over the lines that are not requests
	// SaveUnfull also stores the last, partial block of each prompt. Engines
	// store whole ones.
	SaveUnfull bool
	Limit      int // requests to read; 0 = all
}

// Read reads a trace (see [replay.Requests]) to its end. It fails at the first
// line that is not a request unless these are passed over, and reads no further
// than its limit. The tokens of
// blocks that are not stored count in the prompts all the same.
func Read(r io.Reader, name string, how Reading) (*Trace, error) {
	t := &Trace{blockTokens: how.BlockTokens}
	var all []replay.Request
	var span replay.Span
	for req, err := range replay.Lines(r, name, replay.Form{BlockTokens: how.BlockTokens, Unit: how.Unit}) {
		switch {
		case err == nil:
			if whole := req.InputTokens / how.BlockTokens; !how.SaveUnfull {
				req.BlockIDs = req.BlockIDs[:whole]
			}
			span.Add(req.Millis)
			all = append(all, req)
		case how.SkipBad && errors.Is(err, replay.ErrTrace):
			t.Skipped++
			if t.Bad == nil {
				t.Bad = err
			}
		default:
			return nil, err
		}
		if how.Limit > 0 && len(all) == how.Limit {
			break
		}
	}
	slices.SortStableFunc(all, func(a, b replay.Request) int { return cmp.Compare(a.Millis, b.Millis) })
	t.Late, t.lasts = span.Late, span.Lasts()
	numbers := make(map[uint64]uint32)
	for i := range all {
		t.add(&all[i], name, numbers)
		t.noOutput = t.noOutput || all[i].NoOutput
	}
	return t.done(name)
}

// done ends the reading.
func (t *Trace) done(name string) (*Trace, error) {
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
	t.requests = append(t.requests, request{len(t.blocks), req.InputTokens, t.blockTokens, req.OutputTokens, req.Session, req.Millis})
	t.promptTokens += int64(req.InputTokens)
}

// CheckTree says where the ids of the trace stop standing for prefixes, or nil.
func (t *Trace) CheckTree() error { return t.notTree }

// start is where the blocks of a request begin.
func (t *Trace) start(turn int) int {
	if turn == 0 {
		return 0
	}
	return t.requests[turn-1].end
}

// checkSessions fails where a request is of no session.
func (t *Trace) checkSessions() error {
	for _, r := range t.requests {
		if r.session == 0 {
			return fmt.Errorf("%w: it does not say which requests are of one session; a trace of sessions does", replay.ErrTrace)
		}
	}
	return nil
}

// Lasts is the time from the first request to the last.
func (t *Trace) Lasts() time.Duration { return t.lasts }

// Tokens is how many tokens the prompts have, in all.
func (t *Trace) Tokens() int64 { return t.promptTokens }

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
