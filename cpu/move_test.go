package cpu_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A block that a client holds stays where it is, and one that is only protected
// is moved.
func TestHeldPayloadsAreNotMoved(t *testing.T) {
	h, a := newTier(t, 16*page, ledger.Limits{})
	small := store(t, h, 1, 16, page)
	o := h.Ledger().NewOwner()
	refs := make([]tier.Ref, 8)
	if n, err := h.Hold(o, ledger.Lease, tiertest.Keys(small, 0, 8), refs); n != 8 {
		t.Fatal(err)
	}
	var d drops
	ref, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, tiertest.Chain(2, 1), 0, 4*page, &d))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range refs {
		if err := tiertest.CheckPayload(small.Key(i), r.Block.Bytes()); err != nil {
			t.Errorf("held chunk %d: %v", i, err)
		}
	}
	if st := a.Stats(); st.UsedBytes != 16*page {
		t.Errorf("%d bytes are in use", st.UsedBytes)
	}
	h.Abort([]tier.Ref{ref})
	h.Release(o, ledger.Lease, refs)
	h.Ledger().CloseOwner(o)
	clear(t, h, small)
}

// Chunks of all sizes come and go, are read, held and deleted, while others are
// moved to make room: all bytes read are right, and the ledger and the arena
// agree at the end.
func TestMovesUnderLoad(t *testing.T) {
	h, a := newTier(t, 8*mib, ledger.Limits{})
	var all keys
	var writing, reading errgroup.Group
	stop := make(chan struct{})
	for w := range uint64(4) {
		writing.Go(func() error { return storeAll(t, h, w, &all) })
	}
	for n := range uint64(2) {
		reading.Go(func() error {
			r := rand.New(rand.NewPCG(n, 2))
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if k, ok := all.pick(r); ok {
					if err := readOne(t, h, k, n == 0); err != nil {
						return err
					}
				}
			}
		})
	}
	err := writing.Wait()
	close(stop)
	if err := errors.Join(err, reading.Wait()); err != nil {
		t.Error(err)
	}
	if h.Stats().Counters["moved"] == 0 {
		t.Error("nothing was moved")
	}
	if err := h.Delete(t.Context(), all.known); err != nil {
		t.Error(err)
	}
	if st := a.Stats(); st.UsedBytes != 0 || st.Blocks != 0 {
		t.Errorf("after everything was deleted: %+v", st)
	}
}

// keys are those that were stored at some time.
type keys struct {
	mu    sync.Mutex
	known []key.Key
}

func (s *keys) add(k key.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = append(s.known, k)
}

func (s *keys) pick(r *rand.Rand) (key.Key, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) == 0 {
		return key.Key{}, false
	}
	return s.known[r.IntN(len(s.known))], true
}

// storeAll stores chunks of all sizes, and deletes some.
func storeAll(t *testing.T, h *cpu.Tier, w uint64, all *keys) error {
	r := rand.New(rand.NewPCG(w, 1))
	for i := range uint64(700) {
		c := tiertest.Chain(w<<32|i, 1)
		var d drops
		ref, _, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, c, 0, 1+r.IntN(page<<r.IntN(9)), &d))
		if errors.Is(err, tier.ErrNoSpace) {
			continue
		}
		if err != nil {
			return err
		}
		write(ref, c.Key(0))
		h.Publish([]tier.Ref{ref}, false, false)
		all.add(c.Key(0))
		if k, ok := all.pick(r); ok && i%4 == 0 {
			if err := h.Delete(t.Context(), []key.Key{k}); err != nil {
				return err
			}
		}
	}
	return nil
}

// readOne reads a chunk that is perhaps there, by Get or by a hold.
func readOne(t *testing.T, h tier.Hot, k key.Key, hold bool) error {
	if hold {
		var refs [1]tier.Ref
		n, _ := h.Hold(ledger.Daemon, ledger.Lease, []key.Key{k}, refs[:])
		defer h.Release(ledger.Daemon, ledger.Lease, refs[:n])
		if n == 0 {
			return nil
		}
		return tiertest.CheckPayload(k, refs[0].Block.Bytes())
	}
	b, err := h.Get(t.Context(), k, nil)
	if errors.Is(err, tier.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer b.Release()
	if !b.Verify() {
		return fmt.Errorf("chunk %x does not match its checksum", k.Hash)
	}
	return tiertest.CheckPayload(k, b.Bytes())
}

// A fill that waits, and for which nothing can be moved out of the way, sleeps
// until something changes: its own attempt is no change.
func TestAWaitingFillSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newTier(t, 16*page, ledger.Limits{})
		o := h.Ledger().NewOwner()
		large, small := tiertest.Chain(1, 4), tiertest.Chain(2, 4)
		for i := range 4 { // those of one page leave holes in which those of three find no place
			h.Publish([]tier.Ref{reserve(t, h, ledger.Daemon, large, i, 3*page)}, false, false)
			h.Publish([]tier.Ref{reserve(t, h, ledger.Daemon, small, i, page)}, false, false)
		}
		if err := h.Delete(t.Context(), tiertest.Keys(small, 0, 4)); err != nil {
			t.Fatal(err)
		}
		refs := make([]tier.Ref, 1)
		if n, err := h.Hold(o, ledger.Lease, []key.Key{large.Key(3)}, refs); n != 1 { // and so none may be evicted
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var d drops
		looks := 0
		f := fillOf(o, tiertest.Chain(3, 1), 0, 4*page, &d)
		f.Patience, f.Writing = tier.Wait, func() bool {
			if looks++; looks > 100 {
				cancel()
			}
			return true
		}
		done := make(chan error, 1)
		var ref tier.Ref
		go func() {
			var err error
			ref, _, err = h.Reserve(ctx, f)
			done <- err
		}()
		synctest.Wait()
		if looks == 0 || looks > 2 {
			t.Errorf("it looked %d times", looks)
		}
		h.Release(o, ledger.Lease, refs) // now they may be evicted
		if err := <-done; err != nil {
			t.Error(err)
		} else {
			h.Abort([]tier.Ref{ref})
		}
		h.Ledger().CloseOwner(o)
		if err := h.Delete(t.Context(), tiertest.Keys(large, 0, 4)); err != nil {
			t.Error(err)
		}
	})
}
