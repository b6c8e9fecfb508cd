package server

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
)

// windowRig is a window, and the mapping that its client has.
type windowRig struct {
	*staging
	t      *testing.T
	count  stagingCounters
	client []byte
}

func newWindowRig(t *testing.T, n int64, keeps bool) *windowRig {
	t.Helper()
	r := &windowRig{t: t}
	var err error
	if r.staging, err = newStaging(n, keeps, &r.count, func(f func()) { f() }); err != nil {
		t.Fatal(err)
	}
	if r.client, err = unix.Mmap(int(r.window.File().Fd()), 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.close()
		if n := r.count.bytes.Load(); n != 0 {
			t.Errorf("a closed window has %d bytes", n)
		}
		_ = unix.Munmap(r.client)
	})
	return r
}

// take takes a part and fills it as a client does.
func (r *windowRig) take(n int, b byte) int64 {
	r.t.Helper()
	off, ok := r.alloc(uint32(n))
	if !ok {
		r.t.Fatalf("no room for %d bytes", n)
	}
	copy(r.client[off:], bytes.Repeat([]byte{b}, n))
	return off
}

// has is how many bytes of memory the window takes.
func (r *windowRig) has() int64 {
	r.t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(r.window.File().Fd()), &st); err != nil {
		r.t.Fatal(err)
	}
	return st.Blocks * 512
}

func (r *windowRig) holds(off int64, n int, b byte) {
	r.t.Helper()
	if !bytes.Equal(r.client[off:][:n], bytes.Repeat([]byte{b}, n)) {
		r.t.Errorf("%d bytes at %d are not all %#x", n, off, b)
	}
}

// What a window had no use for in the last minute is given back; what a slot has,
// however long, and a page that was used again meanwhile, is not.
func TestWindowShrinks(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		r := newWindowRig(t, 65*mib, false) // the last segment is half of one
		held := r.take(3*mib, 1)
		large := r.take(62*mib, 2)
		if n := r.has(); n < 65*mib || n > 66*mib { // a huge page is whole
			t.Fatalf("%d bytes were written", n)
		}
		r.free(large, 62*mib)
		time.Sleep(40 * time.Second)
		again := r.take(6*mib, 3)
		r.free(again, 6*mib)
		time.Sleep(15 * time.Second)
		if n := r.has(); n < 65*mib || n > 66*mib {
			t.Errorf("%d bytes are left after 55 s", n)
		}
		time.Sleep(21 * time.Second)
		if n := r.has(); n > 14*mib || n < 9*mib {
			t.Errorf("%d bytes are left; one slot has 3 MiB, 6 MiB were used 36 s ago", n)
		}
		r.holds(held, 3*mib, 1)
		time.Sleep(time.Hour)
		if n := r.has(); n > 4*mib {
			t.Errorf("%d bytes are left of a slot of 3 MiB", n)
		}
		r.holds(held, 3*mib, 1)
		r.free(held, 3*mib)
		time.Sleep(75 * time.Second)
		synctest.Wait()
		r.mu.Lock()
		ticking := r.mu.ticking
		r.mu.Unlock()
		if r.has() != 0 || r.count.bytes.Load() != 0 || ticking {
			t.Errorf("%d bytes are left of nothing, %d are counted, ticking: %t", r.has(), r.count.bytes.Load(), ticking)
		}
		// All of it can be used again.
		r.holds(r.take(65*mib, 4), 65*mib, 4)
		r.free(0, 65*mib)
		if n := r.count.bytes.Load(); n != 66*mib { // in whole segments
			t.Errorf("%d bytes are counted", n)
		}
	})
}

// A driver that has page-locked a window has its pages, whatever becomes of the
// file: a window that keeps its pages has the same ones until it is closed.
func TestWindowKeepsPages(t *testing.T) {
	const mib = 1 << 20
	synctest.Test(t, func(t *testing.T) {
		r := newWindowRig(t, 16*mib, true)
		r.free(r.take(16*mib, 1), 16*mib)
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := r.has(); n != 16*mib {
			t.Errorf("%d bytes are left", n)
		}
		r.holds(0, 16*mib, 1)
		if n := r.count.bytes.Load(); n != 16*mib {
			t.Errorf("%d bytes are counted", n)
		}
	})
}

// Parts that are taken while others are given back keep their bytes, and a
// window that is full only because a part is just being given back is not full.
// It goes on until something was given back.
func TestWindowShrinksUnderUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 16 << 20
		r := newWindowRig(t, size, false)
		stop := make(chan struct{})
		var ticks, users sync.WaitGroup
		ticks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r.mu.Lock()
				for i := range r.mu.warm {
					r.mu.warm[i] = min(r.mu.warm[i], 1)
				}
				r.mu.Unlock()
				r.tick()
			}
		})
		for u := range 2 {
			users.Go(func() {
				random := rand.New(rand.NewPCG(uint64(u), 1))
				for i := 0; i < 300 || r.count.givenBack.Load() == 0; i++ {
					n := 1 + random.IntN(size/4) // both fit always, wherever they lie
					off, ok := r.alloc(uint32(n))
					if !ok {
						t.Errorf("no room for %d bytes", n)
						return
					}
					part := r.client[off:][:n]
					for at := 0; at < n; at += 4096 {
						part[at] = byte(i + u)
					}
					for at := 0; at < n; at += 4096 {
						if part[at] != byte(i+u) {
							t.Errorf("byte %d of a part was lost", at)
							break
						}
					}
					r.free(off, n)
				}
			})
		}
		users.Wait()
		close(stop)
		ticks.Wait()
	})
}

// Slots that lie one behind the other are looked for together, as far as one look
// reaches, and others by themselves.
func TestStagingLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWindowRig(t, 8<<20, false)
		a, err := arena.New(arena.Options{CapacityBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		const unit = 4096
		run := func(sizes ...int) (out []slot) {
			at := int64(0)
			for _, n := range sizes {
				b, err := a.Alloc(n)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(b.Release)
				out = append(out, slot{ref: tier.Ref{Block: b}, window: at})
				at += (int64(n) + unit - 1) / unit * unit
			}
			return out
		}
		gap := run(unit, unit, unit)
		gap[2].window += unit
		many := run(slices.Repeat([]int{arena.LookBytes / 4}, 5)...)
		for name, c := range map[string]struct {
			run  []slot
			want int
		}{
			"one":                  {run(100), 1},
			"sizes that are odd":   {run(100, unit+1, unit-1, 1), 4},
			"with a gap":           {gap, 2},
			"as far as it reaches": {many, 4},
			"longer than a look":   {run(arena.LookBytes+1, unit), 1},
		} {
			if _, n := w.look(c.run); n != c.want {
				t.Errorf("%s: one look for %d of %d slots, want %d", name, n, len(c.run), c.want)
			}
		}
	})
}
