package tiertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	racers     = 8
	raceRounds = 150
	raceKeys   = 24
)

// raceSize differs between chunks, so that a block of another one shows.
func raceSize(i int) int { return 3000 + 1777*i }

// testConcurrent lets many clients put, get and delete the same few keys. Every
// get is a miss or byte exact.
func testConcurrent(t *testing.T, s *suite) {
	c := Chain(1, raceKeys)
	entries := make([]tier.Entry, raceKeys)
	for i := range entries {
		entries[i] = NewEntry(t, s.Arena, c, i, raceSize(i))
		s.stored[c.Key(i)] = true
	}
	var g errgroup.Group
	for n := range racers {
		g.Go(func() error {
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			for range raceRounds {
				if err := s.race(rnd, entries); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		e.Block.Release()
	}
}

func (s *suite) race(rnd *rand.Rand, entries []tier.Entry) error {
	ctx, e := s.t.Context(), entries[rnd.IntN(len(entries))]
	switch rnd.IntN(8) {
	case 0, 1, 2:
		// A deleted entry may be in use for a moment longer: no space for it.
		if err := s.Tier.Put(ctx, e); err != nil && !errors.Is(err, tier.ErrNoSpace) {
			return fmt.Errorf("put: %w", err)
		}
	case 3, 4, 5:
		return s.raceGet(e)
	case 6:
		if err := s.Tier.Delete(ctx, []key.Key{e.Key}); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	case 7:
		ks := []key.Key{e.Key, entries[0].Key}
		if err := s.Tier.Contains(ctx, ks, make([]bool, len(ks))); err != nil {
			return fmt.Errorf("contains: %w", err)
		}
	}
	return nil
}

func (s *suite) raceGet(e tier.Entry) error {
	b, err := s.Tier.Get(s.t.Context(), e.Key, s.Alloc)
	if errors.Is(err, tier.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	defer b.Release()
	if b.Len() != int(e.Size) {
		return fmt.Errorf("get returned %d bytes; %d were stored", b.Len(), e.Size)
	}
	return CheckPayload(e.Key, b.Bytes())
}
