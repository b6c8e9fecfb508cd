package tier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var errIO = errors.New("input/output error")

const (
	mib  = 1 << 20
	size = 64 << 10 // of most payloads
)

// broken is a memory tier behind a fault and a breaker, with one entry in it.
func broken(t *testing.T, f *tierfault.Switch, o tier.BreakerOptions) (tier.Tier, *arena.Arena, key.Key) {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: 4 * mib})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b := tier.WithBreaker(tierfault.Wrap(tiertest.NewMemory("disk", 4*mib), f.Hook), o)
	e := tiertest.NewEntry(t, a, tiertest.Chain(1, 1), 0, size)
	defer e.Block.Release()
	if err := b.Put(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	return b, a, e.Key
}

func getOnce(b tier.Tier, a *arena.Arena, k key.Key) error {
	block, err := b.Get(context.Background(), k, tiertest.Allocator{Arena: a})
	if err == nil {
		block.Release()
	}
	return err
}

func off(t *testing.T, b tier.Tier) bool {
	t.Helper()
	return b.Stats().Off
}

func TestBreakerOpensAndProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Err: errIO}}
		b, a, k := broken(t, f, tier.BreakerOptions{Failures: 3, Pause: time.Second, PauseMax: 3 * time.Second, Log: zerolog.Nop()})
		f.Set(true)
		for i := range 3 {
			if off(t, b) {
				t.Fatalf("off after %d failures", i)
			}
			if err := getOnce(b, a, k); !errors.Is(err, errIO) {
				t.Fatal(err)
			}
		}
		for _, pause := range []time.Duration{1, 2, 3, 3} { // seconds; it doubles up to the most
			before := f.Calls()
			time.Sleep(pause*time.Second - time.Millisecond)
			if err := getOnce(b, a, k); !errors.Is(err, tier.ErrOff) {
				t.Fatalf("before the pause is over: %v", err)
			}
			time.Sleep(time.Millisecond)
			if err := getOnce(b, a, k); !errors.Is(err, errIO) {
				t.Fatalf("probe: %v", err)
			}
			if err := getOnce(b, a, k); !errors.Is(err, tier.ErrOff) {
				t.Fatalf("after a failed probe: %v", err)
			}
			if n := f.Calls() - before; n != 1 {
				t.Fatalf("%d calls came through, want the probe", n)
			}
		}
		f.Set(false)
		time.Sleep(3 * time.Second)
		if err := getOnce(b, a, k); err != nil || off(t, b) {
			t.Fatalf("a tier that works: %v, off %t", err, off(t, b))
		}
		if st := b.Stats(); st.Counters["switched_off"] != 1 || st.Counters["refused_while_off"] != 8 {
			t.Errorf("counters %v", st.Counters)
		}
	})
}

// What a tier that works says too must not switch it off.
func TestBreakerKeepsToFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, err := range []error{tier.ErrNotFound, tier.ErrNoSpace, tier.ErrCorrupt, tier.ErrTooLarge, tier.ErrOverBudget, tier.ErrOverQuota, context.Canceled} {
			f := &tierfault.Switch{Fault: tierfault.Fault{Err: err}}
			b, a, k := broken(t, f, tier.BreakerOptions{Failures: 1, Log: zerolog.Nop()})
			f.Set(true)
			if got := getOnce(b, a, k); !errors.Is(got, err) || off(t, b) {
				t.Errorf("%v: got %v, off %t", err, got, off(t, b))
			}
		}
	})
}

// A success between failures starts the count anew; a miss proves nothing.
func TestBreakerCountsInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Err: errIO}}
		b, a, k := broken(t, f, tier.BreakerOptions{Failures: 2, Log: zerolog.Nop()})
		for range 5 {
			f.Set(true)
			_ = getOnce(b, a, k)
			f.Set(false)
			if err := getOnce(b, a, k); err != nil {
				t.Fatal(err)
			}
		}
		f.Set(true)
		_ = getOnce(b, a, k)
		f.Set(false)
		_ = getOnce(b, a, key.Key{})
		f.Set(true)
		_ = getOnce(b, a, k)
		if !off(t, b) {
			t.Error("two failures with a miss between them did not switch it off")
		}
	})
}

// A tier that hangs is off after one timeout, however many calls are under way;
// the calls that hang with it end, and a probe at a time finds out.
func TestBreakerHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Delay: 2 * time.Second, Err: tier.ErrHung}}
		b, a, k := broken(t, f, tier.BreakerOptions{Log: zerolog.Nop()})
		f.Set(true)
		ended := make(chan error)
		for range 20 {
			go func() { ended <- getOnce(b, a, k) }()
		}
		start := time.Now()
		for range 20 {
			if err := <-ended; !errors.Is(err, tier.ErrHung) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took != 2*time.Second || !off(t, b) {
			t.Fatalf("after %v off is %t", took, off(t, b))
		}
		time.Sleep(time.Second)
		go func() { ended <- getOnce(b, a, k) }() // the probe
		synctest.Wait()
		if err := getOnce(b, a, k); !errors.Is(err, tier.ErrOff) {
			t.Fatalf("beside the probe: %v", err)
		}
		f.Set(false)
		<-ended
		time.Sleep(time.Minute)
		if err := getOnce(b, a, k); err != nil || off(t, b) {
			t.Fatalf("a tier that works: %v, off %t", err, off(t, b))
		}
	})
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := tierfault.Wrap(tiertest.NewMemory("disk", 4*mib), func(tierfault.Call) tierfault.Fault {
			return tierfault.Fault{Delay: time.Second}
		})
		took := make(map[string]time.Duration)
		d := tier.WithBreaker(slow, tier.BreakerOptions{Observe: func(op string, d time.Duration) { took[op] += d }})
		a, err := arena.New(arena.Options{CapacityBytes: 4 * mib})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close() //nolint:errcheck
		e := tiertest.NewEntry(t, a, tiertest.Chain(1, 1), 0, size)
		defer e.Block.Release()
		if err := d.Put(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		for _, k := range []key.Key{e.Key, {}} { // a miss is not timed
			_ = getOnce(d, a, k)
		}
		if err := d.Delete(t.Context(), []key.Key{e.Key}); err != nil {
			t.Fatal(err)
		}
		for _, op := range []string{"get", "put", "delete"} {
			if took[op] != time.Second {
				t.Errorf("%s took %v", op, took[op])
			}
		}
	})
}

// refusingRoom is an Allocator that has nothing to give, or gives it late.
type refusingRoom struct{ err error }

func (r refusingRoom) Alloc(ctx context.Context, _ int) (arena.Block, error) {
	if r.err == nil {
		<-ctx.Done()
		return arena.Block{}, ctx.Err()
	}
	return arena.Block{}, r.err
}

// An error or a delay of the allocator, which gives the memory that payloads are
// read into, does not count against the tier.
func TestBreakerIgnoresAllocator(t *testing.T) {
	for name, err := range map[string]error{
		"unknown": errIO, "no space": tier.ErrNoSpace, "busy": ledger.ErrBusy, "taken": tier.ErrNotFound, "late": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f tierfault.Switch
				b, a, k := broken(t, &f, tier.BreakerOptions{Failures: 1, Log: zerolog.Nop()})
				for range 3 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, got := b.Get(ctx, k, refusingRoom{err})
					cancel()
					if got == nil || err != nil && !errors.Is(got, err) || errors.Is(got, tier.ErrOff) {
						t.Errorf("get: %v", got)
					}
				}
				if err := getOnce(b, a, k); err != nil {
					t.Errorf("the tier works: %v", err)
				}
				f.Fault = tierfault.Fault{Err: errIO}
				f.Set(true)
				if err := getOnce(b, a, k); !errors.Is(err, errIO) {
					t.Error(err)
				}
				if err := getOnce(b, a, k); !errors.Is(err, tier.ErrOff) {
					t.Errorf("after a failure of its own: %v", err)
				}
			})
		})
	}
}

// Wrong bytes now and then cost their entries; again and again they switch the
// tier off, and a tier that goes on like that is off again sooner.
func TestBreakerWrongBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &tierfault.Switch{Fault: tierfault.Fault{Err: tier.ErrCorrupt}}
		b, a, k := broken(t, f, tier.BreakerOptions{Failures: 3, Pause: time.Second, Log: zerolog.Nop()})
		gets := func(n int, wrong bool) (until int) {
			f.Set(wrong)
			for i := range n {
				if _ = getOnce(b, a, k); off(t, b) {
					return i + 1
				}
			}
			return 0
		}
		for range 100 { // one in eleven
			if gets(1, true) > 0 || gets(10, false) > 0 {
				t.Fatal("off over wrong bytes now and then")
			}
		}
		first := gets(1000, true)
		if first == 0 || first > 16 {
			t.Errorf("off after %d wrong payloads in a row, want up to 16", first)
		}
		if err := tierTrouble(b); !errors.Is(err, tier.ErrCorrupt) {
			t.Errorf("it is off for %v", err)
		}
		time.Sleep(time.Minute)
		if gets(1, false) > 0 || off(t, b) || tierTrouble(b) != nil {
			t.Error("a probe that finds the right bytes does not end it")
		}
		if again := gets(1000, true); again == 0 || again >= first {
			t.Errorf("off again after %d, the first time after %d", again, first)
		}
	})
}

func tierTrouble(t tier.Tier) error { return tier.RolesOf(t).Health.Trouble() }
