package cpu_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Between the ledger's hold of an entry and the reader's reference of its
// block another goroutine may delete the entry.
func TestHoldDuringDelete(t *testing.T) {
	h, _ := newTier(t, mib, ledger.Limits{})
	c := tiertest.Chain(1, 2)
	ks := tiertest.Keys(c, 0, 2)
	var g errgroup.Group
	stop := make(chan struct{})
	g.Go(func() error {
		defer close(stop)
		for range 1000 {
			for i := range 2 {
				var d drops
				ref, st, err := h.Reserve(t.Context(), fillOf(ledger.Daemon, c, i, 5000+4000*i, &d))
				if err != nil {
					return err
				}
				if st == ledger.Absent {
					write(ref, ks[i])
					h.Publish([]tier.Ref{ref}, false, false)
				}
			}
			if err := h.Delete(t.Context(), ks); err != nil {
				return err
			}
		}
		return nil
	})
	for range 2 {
		g.Go(func() error { return readUntil(h, ks, stop) })
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	clear(t, h, c)
}

func readUntil(h tier.Hot, ks []key.Key, stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		var refs [2]tier.Ref
		n, err := h.Hold(ledger.Daemon, ledger.Lease, ks, refs[:])
		for i := range n {
			if err == nil {
				err = tiertest.CheckPayload(ks[i], refs[i].Block.Bytes())
			}
		}
		h.Release(ledger.Daemon, ledger.Lease, refs[:n])
		if err != nil {
			return err
		}
	}
}
