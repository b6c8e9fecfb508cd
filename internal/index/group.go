package index

import (
	"errors"
	"fmt"
	"slices"
)

// Kind says which chunks of a group a prefix needs.
type Kind uint8

// The kinds. Their numbers are those of the wire protocol.
const (
	Full   Kind = iota // all
	Window             // those with the last Tokens tokens
	Local              // those behind the last multiple of Tokens: chunked attention
	State              // the last one: it holds the state at its end
)

var kindNames = [...]string{"full", "window", "local", "state"}

func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Group is one KV cache group of a hybrid model.
type Group struct {
	Kind   Kind
	Tokens int // of Window and Local; 0 otherwise
	Chunk  int // tokens in one chunk
}

// Needs returns the chunks from..to of the group that a prefix of n tokens needs, of
// which the first skip are there already, with what the group needs at skip. n is
// a multiple of Chunk and more than skip.
func (g Group) Needs(skip, n int) (from, to int) {
	to = n / g.Chunk
	switch g.Kind {
	case Window:
		from = max(0, n-g.Tokens) / g.Chunk
	case Local:
		if from = n / g.Tokens * g.Tokens / g.Chunk; n%g.Tokens == 0 {
			return to, to
		}
	case State:
		from = to - 1
	}
	return max(from, skip/g.Chunk), to
}

func (g Group) check() error {
	limited := g.Kind == Window || g.Kind == Local
	switch {
	case g.Kind > State:
		return fmt.Errorf("%v is unknown: use 0 (full), 1 (window), 2 (local) or 3 (state)", g.Kind)
	case g.Chunk < 1:
		return fmt.Errorf("a chunk of %d tokens", g.Chunk)
	case limited && g.Tokens < 1:
		return fmt.Errorf("a %v of %d tokens: say how many it needs", g.Kind, g.Tokens)
	case !limited && g.Tokens != 0:
		return fmt.Errorf("kind %v with %d tokens: only a window and a local group have some", g.Kind, g.Tokens)
	}
	return nil
}

// Family is the groups of one model. The order has no meaning here.
type Family []Group

// Check reports the first thing that is wrong with a family.
func (f Family) Check() error {
	for i, g := range f {
		if err := g.check(); err != nil {
			return fmt.Errorf("group %d: %w", i, err)
		}
	}
	if !slices.ContainsFunc(f, func(g Group) bool { return g.Kind == Full }) && !f.OnlyStates() {
		return errors.New("none of the groups is full, and not all are states: without one no length is certain; ask for each space by itself")
	}
	grid := f.Grid()
	for i, g := range f {
		for _, h := range f[:i] {
			if least, most := min(g.Chunk, h.Chunk), max(g.Chunk, h.Chunk); most%least != 0 || grid%most != 0 {
				return fmt.Errorf("group %d has chunks of %d tokens, another of %d: one must divide the other", i, g.Chunk, h.Chunk)
			}
		}
	}
	return nil
}

// OnlyStates reports whether all groups are states: of a recurrent model without
// attention, or of an engine whose snapshots have all of a prompt. Where they lie says
// at which lengths it is usable.
func (f Family) OnlyStates() bool {
	return len(f) > 0 && !slices.ContainsFunc(f, func(g Group) bool { return g.Kind != State })
}

// Grid is the tokens of the longest chunk: usable prefixes are multiples of it.
func (f Family) Grid() int {
	most := 1
	for _, g := range f {
		most = max(most, g.Chunk)
	}
	return most
}

// EachResumePoint calls do, in ascending order, with the lengths of a prompt of n whose
// windows and states are worth storing: the junction, and the end. hit is how much of
// the prompt was usable before, and run how far the full groups reached: where run is
// more another prompt parts from this one there, or what followed was evicted, and the
// next one will end there too. The unit is the caller's.
func EachResumePoint(hit, run, n int, do func(end int)) {
	if hit < run && run < n {
		do(run)
	}
	if n > 0 {
		do(n)
	}
}
