package budget

import (
	"context"
	"sync"
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

// The garbage of a daemon that does little is given back, once, and never while it
// allocates much or where no collection would free it.
func TestRest(t *testing.T) {
	for _, tt := range []struct {
		name             string
		spare, per, live int64 // at first; allocated from look to look; of spare, that no collection frees
		want             int
	}{
		{"much garbage", 40 << 20, 512 << 10, 0, 1},
		{"little garbage", 7 << 20, 0, 0, 0},
		{"garbage that comes again", 0, 8 << 20, 0, 10},
		{"garbage that comes slowly", 0, 2 << 20, 0, 2},
		{"busy", 400 << 20, restAllocs + 1, 0, 0},
		{"pieces between live objects", 100 << 20, 0, 100 << 20, 1}, // the first time tells
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := New(Options{Bytes: mib})
				var mu sync.Mutex
				g, times := glance{spare: tt.spare}, 0
				b.look = func() glance {
					mu.Lock()
					defer mu.Unlock()
					return g
				}
				b.trim = func() {
					mu.Lock()
					defer mu.Unlock()
					times++
					g.spare = tt.live
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- b.Run(ctx) }()
				time.Sleep(restLook / 2)
				for range 10 {
					mu.Lock()
					g.allocated += tt.per
					g.spare += tt.per
					mu.Unlock()
					time.Sleep(restLook)
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if times != tt.want {
					t.Errorf("given back %d times, want %d", times, tt.want)
				}
			})
		})
	}
}

// The runtime tells of garbage what a collection frees.
func TestLookAtHeap(t *testing.T) {
	trim()
	before := lookAtHeap()
	garbage := make([][]byte, 32)
	for i := range garbage {
		garbage[i] = make([]byte, mib)
		garbage[i][0] = 1
	}
	if now := lookAtHeap(); now.allocated-before.allocated < 32*mib {
		t.Errorf("%d bytes allocated, of %d", now.allocated-before.allocated, 32*mib)
	}
	clear(garbage)
	trim()
	if after := lookAtHeap(); after.spare > before.spare+restSpare {
		t.Errorf("%d bytes are spare behind a collection, %d before", after.spare, before.spare)
	}
}
