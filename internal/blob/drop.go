package blob

import (
	"errors"
	"sync/atomic"
)

// DropReason says why a front end took a value and did not keep it.
type DropReason uint8

// The reasons.
const (
	DropNoRoom   DropReason = iota // none for now, or within the client's share
	DropTooLarge                   // for any daemon, or for this one
	DropOwed                       // an older value is still to be deleted below
	DropTiers                      // the tiers below did not answer
	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"no_room", "too_large", "owed", "tiers"}[r]
}

// ReasonOf tells the reason by the error of Begin or Store.
func ReasonOf(err error) DropReason {
	switch {
	case errors.Is(err, ErrTooLarge):
		return DropTooLarge
	case errors.Is(err, ErrNoRoom):
		return DropNoRoom
	case errors.Is(err, ErrOwed):
		return DropOwed
	}
	return DropTiers
}

// Drops counts values by the reason they were dropped for. The zero Drops is
// ready; it is safe for concurrent use.
type Drops [dropReasons]atomic.Uint64

// Add counts one.
func (d *Drops) Add(err error) { d[ReasonOf(err)].Add(1) }

// Counts is how many there were of each reason, all of them named.
func (d *Drops) Counts() map[string]uint64 {
	counts := make(map[string]uint64, dropReasons)
	for r := range dropReasons {
		counts[r.String()] = d[r].Load()
	}
	return counts
}
