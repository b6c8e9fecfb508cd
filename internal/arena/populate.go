package arena

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/base"
)

const (
	// sliceBytes is handed out at a time.
	sliceBytes = 64 << 20
	// stripeBytes is what one worker faults in at a time: enough to make the
	// system call cheap, small enough to spread the work, and to end soon.
	stripeBytes = 8 << 20
	// leftBytes is left to others: where memory is short the kernel ends a process, the daemon
	// or an engine, rather than to return an error.
	leftBytes = 64 << 20
)

// Populate faults in what New has not, slice by slice, and hands out each slice once it is
// there. At an error, and at the end of ctx, it returns: the rest is missing, and never
// handed out. Call it once.
func (a *Arena) Populate(ctx context.Context) error {
	defer a.endPopulating()
	for from := a.Populated(); from < a.capacity; from = a.Populated() {
		to := min(from+sliceBytes, a.capacity)
		if err := checkLeft(to - from); err != nil {
			return fmt.Errorf("arena: %w", err)
		}
		if err := touchAll(ctx, a.mapping.mem[from:to], a.touch); err != nil {
			return fmt.Errorf("arena: %w", err)
		}
		a.grow(to)
	}
	return nil
}

// Populated is how many bytes, from the front on, may be handed out.
func (a *Arena) Populated() int64 { return a.populated.Load() }

// Populating reports whether Populate is to hand out more yet.
func (a *Arena) Populating() bool { return a.populating.Load() }

// Usable is how many bytes, from the front on, are populated or may be yet: clients need to map no
// more.
func (a *Arena) Usable() int64 {
	if a.Populating() {
		return a.capacity
	}
	return a.Populated()
}

// grow hands out all slices before to.
func (a *Arena) grow(to int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.space.Free(a.Populated(), a.missing())
	a.withhold(to)
	a.mu.freed.Wake()
}

// withhold makes one extent of all from off on, which is free; the mutex is held. No block has
// its tag.
func (a *Arena) withhold(off int64) {
	a.populated.Store(off)
	if n := a.missing(); n > 0 && !a.mu.space.Reserve(off, n) {
		base.Broken("arena: memory that is not populated is handed out")
	}
}

// missing is how many bytes are not populated.
func (a *Arena) missing() int64 { return a.capacity - a.Populated() }

func (a *Arena) endPopulating() {
	a.populating.Store(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.freed.Wake() // nothing more comes
}

// checkLeft is an error unless n bytes may be taken. Where nothing tells, they may.
func checkLeft(n int64) error {
	left, source, err := memoryLeft()
	if err == nil && left < n+leftBytes {
		return fmt.Errorf("only %d bytes of memory are left, by %s", max(0, left), source)
	}
	return nil
}

// touchAll faults mem in by touch, on all CPUs.
func touchAll(ctx context.Context, mem []byte, touch func([]byte) error) error {
	stripes := (len(mem) + stripeBytes - 1) / stripeBytes
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make([]error, min(runtime.GOMAXPROCS(0), stripes))
	)
	for w := range errs {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= stripes {
					return
				}
				if errs[w] = ctx.Err(); errs[w] == nil {
					errs[w] = touch(mem[i*stripeBytes : min((i+1)*stripeBytes, len(mem))])
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}
