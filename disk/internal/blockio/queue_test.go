package blockio

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/tier"
)

const miB = 1 << 20

// recorder notes the order in which pieces arrive.
type recorder struct {
	File
	mu     sync.Mutex
	pieces []int64
}

func (r *recorder) note(off int64, n int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces = append(r.pieces, off)
	return n, nil
}

func (r *recorder) ReadAt(p []byte, off int64) (int, error)  { return r.note(off, len(p)) }
func (r *recorder) WriteAt(p []byte, off int64) (int, error) { return r.note(off, len(p)) }

type told chan error

func (c told) Finish(err error) { c <- err }

func TestPiecesGoInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(1, time.Minute)
		r := &recorder{}
		var done []told
		submit := func(at int64, n int, write bool) {
			c := make(told, 1)
			done = append(done, c)
			if err := d.Submit(&Transfer{File: r, Off: at * 100 * 1 << 20, Buf: make([]byte, n), Write: write, End: c}); err != nil {
				t.Fatal(err)
			}
		}
		submit(1, 3*miB, false)
		submit(2, miB, false)
		submit(9, 2*miB, true)
		submit(3, 3*miB, false)
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- d.Run(ctx) }()
		for i, c := range done {
			if err := <-c; err != nil {
				t.Fatalf("transfer %d: %v", i, err)
			}
		}
		cancel()
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		want := []int64{100 * 1 << 20, 101 * 1 << 20, 102 * 1 << 20, 200 * 1 << 20, 900 * 1 << 20, 300 * 1 << 20, 301 * 1 << 20, 302 * 1 << 20, 901 * miB}
		if !slices.Equal(r.pieces, want) {
			t.Fatalf("pieces at %v, want %v", r.pieces, want)
		}
		c := make(told, 1)
		if err := d.Submit(&Transfer{End: c}); !errors.Is(err, tier.ErrClosed) {
			t.Fatalf("submit after the end: %v", err)
		}
	})
}

// A transfer is finished exactly once, however its end and a cancel meet.
func TestCancelRaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(2, time.Minute)
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- d.Run(ctx) }()
		r := &recorder{}
		var all []told
		for i := range 500 {
			c := make(told, 2)
			all = append(all, c)
			x := &Transfer{File: r, Buf: make([]byte, 10), End: c, Write: i%2 == 0}
			if err := d.Submit(x); err != nil {
				t.Fatal(err)
			}
			if i%3 == 0 {
				d.Cancel(x, context.Canceled)
				d.Cancel(x, context.Canceled)
			}
		}
		for i, c := range all {
			if err := <-c; err != nil && (i%3 != 0 || !errors.Is(err, context.Canceled)) {
				t.Fatalf("transfer %d: %v", i, err)
			}
		}
		cancel()
		<-ran
		for i, c := range all {
			if len(c) != 0 {
				t.Fatalf("transfer %d was finished twice", i)
			}
		}
	})
}

// The pieces of a lone transfer are under way together.
func TestPiecesOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := New(2, time.Second)
		ctx, cancel := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- d.Run(ctx) }()
		synctest.Wait() // both workers sleep
		f := &meeting{met: make(chan struct{})}
		done := make(chan error, 1)
		x := &Transfer{File: f, Buf: make([]byte, 4*PieceBytes), End: told(done)}
		if err := d.Submit(x); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		select {
		case <-f.met:
		default:
			t.Error("never were two pieces of one transfer in the device at once")
		}
	})
}

// meeting is a file in which a read waits a while for a second one.
type meeting struct {
	File
	in   atomic.Int64
	once sync.Once
	met  chan struct{}
}

func (f *meeting) ReadAt(p []byte, _ int64) (int, error) {
	if f.in.Add(1) == 2 {
		f.once.Do(func() { close(f.met) })
	}
	defer f.in.Add(-1)
	select {
	case <-f.met:
	case <-time.After(10 * time.Second):
	}
	return len(p), nil
}
