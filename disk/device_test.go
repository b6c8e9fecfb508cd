package disk

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// faulty is a folder whose files fail or hang as the test says.
type faulty struct {
	blockio.Folder
	garble atomic.Bool  // the next read comes wrong
	hung   atomic.Int64 // transfers that were begun while they hang

	mu   sync.Mutex
	fail error         // of every transfer
	full error         // of every write, if not nil
	hang chan struct{} // every transfer waits for it
}

type faultyFile struct {
	blockio.File
	f *faulty
}

func newFaulty(t *testing.T, dir string) *faulty {
	t.Helper()
	f, err := blockio.NewFolder(folderAt(t, dir), false)
	if err != nil {
		t.Fatal(err)
	}
	return &faulty{Folder: f}
}

func (f *faulty) set(fail error, hang chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail, f.hang = fail, hang
}

// refuse has every write fail with err.
func (f *faulty) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.full = err
}

// written is the error of a write.
func (f *faulty) written() error {
	if err := f.gate(); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.full
}

func (f *faulty) gate() error {
	f.mu.Lock()
	fail, hang := f.fail, f.hang
	f.mu.Unlock()
	if hang != nil {
		f.hung.Add(1)
		<-hang
	}
	return fail
}

func (f *faulty) Create(path string, size int64) (blockio.File, error) {
	g, err := f.Folder.Create(path, size)
	return faultyFile{g, f}, err
}

func (f faultyFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.f.gate(); err != nil {
		return 0, err
	}
	n, err := f.File.ReadAt(p, off)
	if f.f.garble.CompareAndSwap(true, false) {
		p[n/2] ^= 1
	}
	return n, err
}

func (f faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.f.written(); err != nil {
		return 0, err
	}
	return f.File.WriteAt(p, off)
}

func (f faultyFile) Sync() error {
	if err := f.f.written(); err != nil {
		return err
	}
	return f.File.Sync()
}

func TestDeviceErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, 3*mib)
		f.set(syscall.EIO, nil)
		wantErr(t, put(t, d, m, 2, 3*mib), syscall.EIO)
		wantErr(t, get(t, d, m, 1, 3*mib), syscall.EIO)
		if d.Has(keyOf(2)) || !d.Has(keyOf(1)) {
			t.Fatal("an error of the device says nothing about what is stored")
		}
		if d.Stats().Counters["io_errors"] == 0 {
			t.Fatal("errors are not counted")
		}
		f.set(nil, nil)
		mustPut(t, d, m, 2, 3*mib)
		mustGet(t, d, m, 1, 3*mib)
		mustGet(t, d, m, 2, 3*mib)
		checkBooks(t, d)
	})
}

func TestHungDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, _ := start(t, o, f)
		m := newMemory(t)
		mustPut(t, d, m, 1, mib)
		hang := make(chan struct{})
		f.set(nil, hang)

		wantErr(t, put(t, d, m, 2, mib), os.ErrDeadlineExceeded)
		wantErr(t, get(t, d, m, 1, mib), os.ErrDeadlineExceeded)
		wantErr(t, get(t, d, m, 1, mib), os.ErrDeadlineExceeded) // never got to the device
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		_, err := d.Get(ctx, keyOf(1), m)
		wantErr(t, err, context.DeadlineExceeded)
		// The two that hang hold their memory, those that were still queued do not.
		if blocks := m.Stats().Blocks; blocks != 2 {
			t.Fatalf("%d blocks are held, want the 2 in the kernel", blocks)
		}
		if err := d.Delete(context.Background(), []key.Key{keyOf(1)}); err != nil {
			t.Fatal(err)
		}
		if used := d.Stats().UsedBytes; used != 2*extentBytes(mib) {
			t.Fatalf("%d bytes in use: an extent under I/O was freed", used)
		}

		f.set(nil, nil)
		close(hang)
		mustPut(t, d, m, 3, mib) // behind what hung
		mustGet(t, d, m, 3, mib)
		mustPut(t, d, m, 2, mib) // waits for the one given up, or finds it stored
		mustGet(t, d, m, 2, mib)
		await(t, "what was deleted while the device hung is never free", func() bool {
			return d.Stats().UsedBytes == 2*extentBytes(mib) && m.Stats().Blocks == 0
		})
		checkBooks(t, d)
	})
}

func TestCloseLeavesAHungDeviceBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		f := newFaulty(t, o.Paths[0])
		d, err := openRig(o, f)
		if err != nil {
			t.Fatal(err)
		}
		ran := make(chan error, 1)
		go func() { ran <- d.Run(context.Background()) }()
		hang := make(chan struct{})
		f.set(nil, hang)
		m := newMemory(t)
		left := make(chan error, 1)
		go func() { left <- put(t, d, m, 1, 5000) }()
		await(t, "the write does not reach the device", func() bool { return f.hung.Load() > 0 })
		d.volumes[0].dev.Progress.Add(1) // so that the put is given up later than the device
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-ran, tier.ErrHung)
		wantErr(t, <-left, tier.ErrClosed)
		close(hang)
		await(t, "the transfer does not end by itself", func() bool { return m.Stats().Blocks == 0 })
	})
}

func TestSlowIsNotHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &instance{o: Options{IOTimeout: time.Second}, count: new(counters), metaDev: blockio.New(1, time.Second), commits: &metadata.Committer{}, ended: make(chan struct{})}
		done := make(chan error, 1)
		go func() {
			for range 5 { // others make progress
				time.Sleep(900 * time.Millisecond)
				tr.metaDev.Progress.Add(1)
			}
			done <- nil
		}()
		if err := tr.wait(context.Background(), done, nil); err != nil {
			t.Fatalf("a slow device is taken for a hung one: %v", err)
		}
		begun := time.Now()
		wantErr(t, tr.wait(context.Background(), done, nil), os.ErrDeadlineExceeded)
		if took := time.Since(begun); took != time.Second {
			t.Fatalf("a hung device is noticed after %v", took)
		}
	})
}
