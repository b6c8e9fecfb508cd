package arena

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// all hands out everything that is free, in blocks of n bytes.
func all(t *testing.T, a *Arena, n int) (blocks []Block) {
	t.Helper()
	for {
		b, err := a.Alloc(n)
		if errors.Is(err, ErrFull) {
			return blocks
		}
		if err != nil {
			t.Fatal(err)
		}
		if b.Offset()+int64(len(b.Padded())) > a.Populated() {
			t.Fatalf("a block at %d, and only %d bytes are populated", b.Offset(), a.Populated())
		}
		blocks = append(blocks, b)
	}
}

// TestPopulate: a slice that is not populated is neither free nor used; each is handed out once it
// is there, to fills that wait as well.
func TestPopulate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const capacity = 3*sliceBytes + 5*AlignBytes
		step := make(chan struct{})
		a := newTest(t, Options{CapacityBytes: capacity, Touch: func(p []byte, _ bool) error {
			if len(p) < stripeBytes { // the last one
				<-step
			}
			return nil
		}})
		st := a.Stats()
		if st.PopulatedBytes != sliceBytes || st.FreeBytes != sliceBytes || st.LargestFreeBytes != sliceBytes || st.UsedBytes != 0 || st.Blocks != 0 || !a.Populating() {
			t.Errorf("a new arena: %+v", st)
		}
		blocks := all(t, a, 1<<20)
		if st = a.Stats(); len(blocks) != sliceBytes>>20 || st.UsedBytes != sliceBytes || st.Blocks != int64(len(blocks)) || st.FreeBytes != 0 {
			t.Errorf("%d blocks: %+v", len(blocks), st)
		}
		freed, ended := a.Freed(), make(chan error, 1)
		go func() { ended <- a.Populate(t.Context()) }()
		<-freed
		synctest.Wait()
		blocks = append(blocks, all(t, a, 1<<20)...)
		if a.Populated() != 3*sliceBytes || len(blocks) != 3*sliceBytes>>20 || !a.Populating() {
			t.Errorf("before the last slice: %d bytes, %d blocks", a.Populated(), len(blocks))
		}
		close(step)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		blocks = append(blocks, all(t, a, 5*AlignBytes)...)
		if st = a.Stats(); st.UsedBytes != capacity || st.PopulatedBytes != capacity || a.Populating() {
			t.Errorf("at the end: %+v", st)
		}
		for _, b := range blocks {
			b.Release()
		}
		if st = a.Stats(); st.FreeBytes != capacity || st.LargestFreeBytes != capacity {
			t.Errorf("all released: %+v", st)
		}
	})
}

// TestPopulateFails: an error ends it, and so does a signal; missing slices are never handed out.
func TestPopulateFails(t *testing.T) {
	short := errors.New("cannot allocate memory")
	var calls atomic.Int64
	var stop context.CancelFunc
	for name, touch := range map[string]func([]byte, bool) error{
		"an error": func([]byte, bool) error {
			if calls.Add(1) == 2*sliceBytes/stripeBytes+3 {
				return short
			}
			return nil
		},
		"a signal": func(p []byte, _ bool) error {
			if calls.Add(1) == 2*sliceBytes/stripeBytes+3 {
				stop()
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			calls.Store(0)
			var ctx context.Context
			ctx, stop = context.WithCancel(t.Context())
			a := newTest(t, Options{CapacityBytes: 64 * sliceBytes, Touch: touch})
			if err := a.Populate(ctx); !errors.Is(err, short) && !errors.Is(err, context.Canceled) {
				t.Errorf("Populate: %v", err)
			}
			if n := calls.Load(); n > 4*sliceBytes/stripeBytes {
				t.Errorf("%d calls: it goes on", n)
			}
			if a.Populated() != 2*sliceBytes || a.Populating() {
				t.Errorf("%d bytes are populated; it goes on: %t", a.Populated(), a.Populating())
			}
			blocks := all(t, a, MaxPayload)
			if len(blocks) != 2 {
				t.Errorf("%d blocks of %d bytes", len(blocks), MaxPayload)
			}
			blocks[0].Release()
			if b, err := a.Compact(t.Context(), MaxPayload, nil); err != nil {
				t.Error(err)
			} else {
				b.Release()
			}
			blocks[1].Release()
		})
	}
	_, err := New(Options{CapacityBytes: sliceBytes, Touch: func([]byte, bool) error { return short }})
	if !errors.Is(err, short) || strings.Count(err.Error(), short.Error()) != 1 {
		t.Errorf("an arena without its first slice: %v", err)
	}
}
