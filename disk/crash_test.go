package disk

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// crashSize makes the size of a payload from its number.
func crashSize(n int) int { return 1 + n*104_729%600_000 }

// A copy of the directory, taken while it is written to, is a crash too, and a
// worse one: it is torn.
func TestTornCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MetaReserveBytes, o.SegmentBytes = 32*mib, 12*mib, 4*mib
		d, _ := start(t, o, nil)
		m := newMemory(t)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ctx.Err() == nil; i++ {
				putOrTrim(t, d, m, i, crashSize(i), func([]key.Key) {})
			}
		}()
		for d.Stats().Evictions == 0 { // no time passes while it is written
			runtime.Gosched()
		}
		torn := o
		torn.Paths, torn.Meta = []string{tiertest.Folder(t)}, ""
		copyTorn(t, o.Paths[0], torn.Paths[0])
		cancel()
		<-done

		copied, _ := start(t, torn, nil)
		for k := range recoverAll(t, copied) {
			n := int(uint64(k.Hash[0])|uint64(k.Hash[1])<<8|uint64(k.Hash[2])<<16) - 1
			if err := get(t, copied, m, n, crashSize(n)); err != nil && !errors.Is(err, tier.ErrCorrupt) {
				t.Fatal(err)
			}
		}
		checkBooks(t, copied)
	})
}
