package budget

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Memory that clients let go of bit by bit is given back, too, once.
func TestSlowFall(t *testing.T) {
	var b Budget
	b.mu.peak, b.mu.used = 64<<20, 64<<20
	for _, step := range []struct {
		used int64
		want bool
	}{
		{56 << 20, false},
		{40 << 20, false}, // less than half
		{26 << 20, true},
		{24 << 20, false}, // it was given back
		{20 << 20, false},
		{12 << 20, true},
		{6 << 20, false}, // too little
	} {
		b.mu.used = step.used
		if got := b.fallen(); got != step.want {
			t.Errorf("at %d MiB: %t", step.used>>20, got)
		}
	}
}

// A daemon that comes to rest gives its garbage back, once; never while it allocates
// much.
func TestRest(t *testing.T) {
	const much = restAllocs + 1
	for _, tt := range []struct {
		name string
		each []int64 // allocated from look to look
		want []int   // the looks at which memory is given back
	}{
		{"a start", []int64{much, 0, 0, 0}, nil}, // less than trimBytes
		{"idle", []int64{40 << 20, 0, 0, 0, 0}, []int{1}},
		{"busy", []int64{much, much, much, much, much}, nil},
		{"busy again", []int64{much, much, 0, 0, much, much, much, 0}, []int{2, 7}},
		{"little by little", []int64{0, restAllocs, restAllocs, 1, restAllocs, restAllocs, 0}, []int{2, 5}},
		{"slowly", slices.Repeat([]int64{1 << 20}, 17), []int{7, 15}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(Options{Bytes: mib})
				var allocated, times atomic.Int64
				b.allocated = allocated.Load
				b.trim = func() { times.Add(1) }
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Run(ctx) }()
				time.Sleep(restLook / 2)
				var got []int
				for i, n := range tt.each {
					allocated.Add(n)
					before := times.Load()
					time.Sleep(restLook)
					for range times.Load() - before {
						got = append(got, i)
					}
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("given back at looks %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// The runtime tells what was allocated.
func TestAllocatedBytes(t *testing.T) {
	before := allocatedBytes()
	kept := make([]byte, 32*mib)
	if n := allocatedBytes() - before; n < int64(len(kept)) {
		t.Errorf("%d bytes allocated, of %d", n, len(kept))
	}
}
