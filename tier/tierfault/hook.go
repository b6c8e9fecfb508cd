package tierfault

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Op is an operation of a tier that can fail.
type Op string

// The operations.
const (
	Contains Op = "contains"
	Get      Op = "get"
	Put      Op = "put"
	Delete   Op = "delete"
	Trim     Op = "trim"
	Recover  Op = "recover"
	Sync     Op = "sync"
)

// Call is one call about to be made.
type Call struct {
	Op   Op
	N    int       // calls of this operation before this one
	Keys []key.Key // what it is about; borrowed; nil for Trim, Recover and Sync
}

// Fault is what happens to a call. The zero Fault lets it pass. Of several
// things Until, Delay and Hang come first, in this order.
type Fault struct {
	Until   <-chan struct{} // wait for this channel first
	Delay   time.Duration   // let this much time pass first
	Hang    bool            // never return before the context ends
	Err     error           // return this
	Corrupt bool            // Get: flip a bit of the sealed block on its way
	Late    bool            // Get, Put: Until, Delay and Hang come once it is done
	// Serve is how many keys of a Contains or Delete, or records of a
	// Recover, are still served before Err is returned.
	Serve int
}

// Hook decides what happens to a call. It may be called concurrently.
type Hook func(Call) Fault

// On applies f to every call of op.
func On(op Op, f Fault) Hook {
	return func(c Call) Fault {
		if c.Op == op {
			return f
		}
		return Fault{}
	}
}

// OnKey applies f to every call of op whose first key is k.
func OnKey(op Op, k key.Key, f Fault) Hook {
	return func(c Call) Fault {
		if c.Op == op && len(c.Keys) > 0 && c.Keys[0] == k {
			return f
		}
		return Fault{}
	}
}

// At applies f to the n-th call of op, counted from 0.
func At(op Op, n int, f Fault) Hook {
	return func(c Call) Fault {
		if c.Op == op && c.N == n {
			return f
		}
		return Fault{}
	}
}

// Switch applies a fault to every Get, Put and Sync while it is on, and counts
// those calls. It is off at first.
type Switch struct {
	Fault Fault
	on    atomic.Bool
	calls atomic.Int64
}

// Set switches it on or off.
func (s *Switch) Set(on bool) { s.on.Store(on) }

// Calls is how many there were so far.
func (s *Switch) Calls() int64 { return s.calls.Load() }

// Hook is what to wrap a tier with.
func (s *Switch) Hook(c Call) Fault {
	if c.Op != Get && c.Op != Put && c.Op != Sync {
		return Fault{}
	}
	s.calls.Add(1)
	if !s.on.Load() {
		return Fault{}
	}
	return s.Fault
}

// wait lets pass what f wants to pass first.
func (f *Fault) wait(ctx context.Context) error {
	if f.Until != nil {
		select {
		case <-f.Until:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.Delay > 0 {
		t := time.NewTimer(f.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if f.Hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}
