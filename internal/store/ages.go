package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// ages removes chunks that have expired from every tier, with the remover. Until it has,
// lookups do not find them: that is asked of the book at each lookup, hold and
// promotion, so that a tier that cannot delete at present shows none.
type ages struct {
	book    *stale.Book
	remover *Remover
	wake    chan struct{} // capacity 1: there are spaces to shorten
	mu      struct {
		sync.Mutex
		spaces map[key.SpaceID]time.Duration // of which chunks are to expire earlier
	}
}

func newAges(b *stale.Book, r *Remover) *ages {
	a := &ages{book: b, remover: r, wake: make(chan struct{}, 1)}
	a.mu.spaces = make(map[key.SpaceID]time.Duration)
	return a
}

const (
	// sweepEvery is the pause between two looks for chunks that have expired.
	sweepEvery = time.Second
	// sweepPauseMax is the longest pause after deletions that failed.
	sweepPauseMax = time.Minute
	// sweepAtOnce is how many chunks are deleted at a time, and sweepWait for how long.
	sweepAtOnce = 1024
	sweepWait   = time.Minute
	// pruneEvery is the pause between two looks for expiries of chunks that are gone; where
	// there are more than pruneSpare expiries beyond twice the chunks that are known there
	// is none.
	pruneEvery = 5 * time.Minute
	pruneSpare = 64 << 10
)

// shorten has the chunks of a space expire in time that are there already.
func (a *ages) shorten(id key.SpaceID, most time.Duration) {
	a.mu.Lock()
	a.mu.spaces[id] = most
	a.mu.Unlock()
	base.Poke(a.wake)
}

// run removes chunks that have expired until ctx ends.
func (a *ages) run(ctx context.Context) error {
	pause, pruned := sweepEvery, time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.wake:
		case <-time.After(pause):
		}
		a.shortenAll()
		if err := a.sweep(ctx); err != nil && ctx.Err() == nil {
			if pause == sweepEvery {
				a.remover.log.Warn().Err(err).Msg("chunks that are over cannot be removed from each tier yet; nobody gets them, and it is tried again")
			}
			pause = min(2*pause, sweepPauseMax)
			continue
		}
		pause = sweepEvery
		known, _ := a.remover.index.stats()
		if time.Since(pruned) >= pruneEvery || a.book.Stats().Chunks > 2*known.Chunks+pruneSpare {
			a.book.Prune(func(ks []key.Key) ([]bool, bool) { return a.gone(ks), ctx.Err() == nil })
			pruned = time.Now()
		}
	}
}

// shortenAll has the chunks of the spaces that shorten has named expire earlier.
func (a *ages) shortenAll() {
	a.mu.Lock()
	spaces := a.mu.spaces
	a.mu.spaces = make(map[key.SpaceID]time.Duration)
	a.mu.Unlock()
	for id, most := range spaces {
		a.book.Shorten(id, a.remover.index.keys(id, tier.All), most)
	}
}

// sweep removes all that has expired. An error leaves the rest to the next one.
func (a *ages) sweep(ctx context.Context) error {
	for {
		ks, more := a.book.Due(sweepAtOnce)
		if len(ks) > 0 {
			if err := a.remove(ctx, ks); err != nil {
				a.book.Again(ks)
				return err
			}
			a.book.Removed(ks)
		}
		if !more {
			return nil
		}
	}
}

func (a *ages) remove(ctx context.Context, ks []key.Key) error {
	ctx, cancel := context.WithTimeout(ctx, sweepWait)
	defer cancel()
	expired, renewed, asked := a.renewed(ctx, ks)
	n, err := a.remover.Delete(ctx, expired)
	here, hereErr := a.removeHere(ctx, renewed)
	if n += here; n > 0 {
		a.remover.log.Debug().Int("chunks", n).Msg("removed, as their time had come")
	}
	return errors.Join(asked, err, hereErr)
}

// renewed tells those of ks that another machine has stored anew in the shared tier,
// since they had expired, from the others. After an error, all that it may have.
func (a *ages) renewed(ctx context.Context, ks []key.Key) (expired, renewed []key.Key, err error) {
	far := a.remover.levels.far()
	if far == nil {
		return ks, nil, nil
	}
	var shared []key.Key
	for _, k := range ks {
		if a.remover.writers.Reach(k.Space).Has(far.Place) {
			shared = append(shared, k)
		} else {
			expired = append(expired, k)
		}
	}
	is := make([]bool, len(shared))
	if err = far.Shared.Renewed(ctx, shared, is); err != nil {
		err = fmt.Errorf("ask %s what is over: %w", far.Place, err)
	}
	for i, k := range shared {
		if is[i] || err != nil {
			renewed = append(renewed, k)
		} else {
			expired = append(expired, k)
		}
	}
	anew := func(k key.Key) bool { return !a.book.Expired(k) } // stored here while the tier was asked
	return slices.DeleteFunc(expired, anew), slices.DeleteFunc(renewed, anew), err
}

// removeHere leaves alone what the shared tier has.
func (a *ages) removeHere(ctx context.Context, ks []key.Key) (int, error) {
	if len(ks) == 0 {
		return 0, nil
	}
	return a.remover.deleteFrom(ctx, tier.All&^tier.Of(a.remover.levels.far().Place), ks)
}

// gone says which of ks no tier has, nor is about to have.
func (a *ages) gone(ks []key.Key) []bool {
	is, r := make([]bool, len(ks)), a.remover
	for i, k := range ks {
		is[i] = r.index.Where(k) == 0 && !r.writers.Has(k) && !r.writers.IsBelow(k)
	}
	return is
}
