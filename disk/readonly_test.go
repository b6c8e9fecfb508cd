package disk

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A file system that goes read-only under full load ends no process and hangs
// no call: puts fail, and the stored entries can be read.
func TestReadOnlyFileSystem(t *testing.T) {
	dir, fail, unmount := breakableFileSystem(t, 400*mib)
	defer unmount()
	o := testOptions(dir)
	o.CapacityBytes, o.IOTimeout = 200*mib, defaultIOTimeout // for the end of a database that cannot write
	d, _ := start(t, o, nil)
	m := newMemory(t)
	for i := range 20 {
		mustPut(t, d, m, i, mib)
	}
	var failed atomic.Bool
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
				if i == 300 {
					failed.Store(true)
					fail()
				}
			}
		})
	}
	g.Wait()
	for i := range 20 {
		if err := get(t, d, m, i, mib); err != nil && !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("get %d: %v", i, err)
		}
	}
	_, _ = d.Trim(t.Context(), 10*mib, nil)
	_ = d.Delete(t.Context(), []key.Key{keyOf(1)})
	if err := d.Close(); err != nil { // the database cannot write its last table
		wantErr(t, err, tier.ErrHung)
	}
}
