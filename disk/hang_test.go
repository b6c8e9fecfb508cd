package disk

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
)

// hangTimeout is the I/O timeout of a tier that startHanging starts: less than a second,
// which is how often the maintenance makes progress.
const hangTimeout = 500 * time.Millisecond

// startHanging runs a tier, some of whose devices are to hang, until the test ends. What
// hangs is given up soon. While moving is true all else has nine times as long, however
// slow the machine, and opening and closing have as long as the options say.
func startHanging(t *testing.T, o Options, moving func() bool, kinds ...blockio.Folder) *Tier {
	t.Helper()
	d, err := open(o, kinds...)
	if err != nil {
		t.Fatal(err)
	}
	patient := d.o.IOTimeout
	d.o.IOTimeout = hangTimeout
	var ending atomic.Bool
	endMoving := keepMoving(d, func() bool { return ending.Load() || moving() })
	ran := make(chan error, 1)
	go func() { ran <- d.Run(context.Background()) }()
	t.Cleanup(func() {
		ending.Store(true)
		if err := d.halt(); err != nil {
			t.Errorf("halt: %v", err)
		}
		if err := <-ran; err != nil {
			t.Errorf("run: %v", err)
		}
		endMoving()
		d.o.IOTimeout = patient
		if err := d.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return d
}

// keepMoving has all devices of a tier make progress while there is to be some: then none
// of them hangs, however slow the machine. It returns what ends that.
func keepMoving(d *Tier, progress func() bool) (end func()) {
	stop := make(chan struct{})
	var moving sync.WaitGroup
	moving.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			for _, dev := range d.devices() {
				if progress() {
					dev.Progress.Add(1)
				}
			}
		}
	})
	return func() { close(stop); moving.Wait() }
}
