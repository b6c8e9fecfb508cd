package disk

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A file system that goes read-only under full load ends nothing and hangs no call:
// puts fail, and the stored entries can be read. When it takes writes again they are
// stored.
func TestReadOnlyFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		pulse := newGate(t)
		o.pulse = pulse
		d, err := openRig(o, f)
		if err != nil {
			t.Fatal(err)
		}
		runTier(t, d)
		m := newMemory(t)
		for i := range 20 {
			mustPut(t, d, m, i, 100_000)
		}
		var failed atomic.Bool
		fail := func() {
			failed.Store(true)
			f.refuse(syscall.EROFS)
			pulse.refuse(syscall.EROFS)
		}
		var refused [4]int
		var g sync.WaitGroup
		for w := range 4 {
			g.Go(func() {
				for i := 100 + w; refused[w] < 20; i += 4 {
					err := put(t, d, m, i, 100+w%2*100_000)
					if errors.Is(err, tier.ErrNoSpace) && !failed.Load() {
						_, err = d.Trim(t.Context(), mib, nil)
					}
					if err != nil && !failed.Load() {
						t.Error(err)
					}
					if err != nil {
						refused[w]++
					} else if refused[w] > 10 {
						t.Errorf("put %d of a read-only file system", i)
					}
					if i == 200 {
						fail()
					}
				}
			})
		}
		g.Wait()
		for i := range 20 {
			mustGet(t, d, m, i, 100_000)
		}
		_, _ = d.Trim(t.Context(), 10*mib, nil)
		if err := d.Delete(t.Context(), []key.Key{keyOf(1)}); err == nil {
			t.Error("deleted from a read-only file system")
		}
		f.refuse(nil)
		pulse.refuse(nil)
		await(t, "it is not stored again", func() bool { return put(t, d, m, 2000, 100_000) == nil })
		mustGet(t, d, m, 2000, 100_000)
	})
}
