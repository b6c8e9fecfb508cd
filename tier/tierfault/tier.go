package tierfault

import (
	"context"
	"fmt"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Wrap returns t with hook asked before every call that can fail. The result
// has the roles of t: see tier.RolesOf.
func Wrap(t tier.Tier, hook Hook) tier.Tier {
	f := &faulty{Tier: t, inner: tier.RolesOf(t), hook: hook}
	f.mu.calls = make(map[Op]int)
	return f
}

// faulty is the part that every tier has. Name, Stats and Close cannot fail.
type faulty struct {
	tier.Tier
	inner tier.Roles
	hook  Hook

	mu struct {
		sync.Mutex
		calls map[Op]int
	}
}

// Roles keeps the roles of the tier that is made to fail.
func (f *faulty) Roles() tier.Roles {
	r := f.inner
	if r.Resident != nil {
		r.Resident = residency{r.Resident, f}
	}
	if r.Recoverer != nil {
		r.Recoverer = recovery{r.Recoverer, f}
	}
	return r
}

// ask counts the call, asks the hook, and lets the time pass that it wants.
func (f *faulty) ask(ctx context.Context, op Op, ks []key.Key) (Fault, error) {
	f.mu.Lock()
	n := f.mu.calls[op]
	f.mu.calls[op]++
	f.mu.Unlock()
	fault := f.hook(Call{Op: op, N: n, Keys: ks})
	if fault.Late {
		return fault, nil
	}
	return fault, f.wait(ctx, op, fault)
}

// wait lets the time pass that fault wants.
func (f *faulty) wait(ctx context.Context, op Op, fault Fault) error {
	if err := fault.wait(ctx); err != nil {
		return fmt.Errorf("%s: %s: %w", f.Name(), op, err)
	}
	return nil
}

// fail is the error a fault ends op with, nil for none.
func (f *faulty) fail(op Op, fault Fault) error {
	if fault.Err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", f.Name(), op, fault.Err)
}

// served is the part of ks that still gets through.
func served(fault Fault, ks []key.Key) []key.Key {
	if fault.Err == nil {
		return ks
	}
	return ks[:min(fault.Serve, len(ks))]
}

func (f *faulty) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	fault, err := f.ask(ctx, Contains, ks)
	if err != nil {
		return err
	}
	if part := served(fault, ks); len(part) > 0 || fault.Err == nil {
		if err := f.Tier.Contains(ctx, part, have); err != nil {
			return err
		}
	}
	return f.fail(Contains, fault)
}

func (f *faulty) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	fault, err := f.ask(ctx, Get, []key.Key{k})
	if err == nil {
		err = f.fail(Get, fault)
	}
	if err != nil {
		return arena.Block{}, err
	}
	b, err := f.Tier.Get(ctx, k, a)
	if err == nil && fault.Corrupt {
		b.Bytes()[b.Len()/2] ^= 1
	}
	if err == nil && fault.Late {
		if err = f.wait(ctx, Get, fault); err != nil {
			b.Release()
			return arena.Block{}, err
		}
	}
	return b, err
}

func (f *faulty) Put(ctx context.Context, e tier.Entry) error {
	fault, err := f.ask(ctx, Put, []key.Key{e.Key})
	if err == nil {
		err = f.fail(Put, fault)
	}
	if err != nil {
		return err
	}
	if err := f.Tier.Put(ctx, e); err != nil || !fault.Late {
		return err
	}
	return f.wait(ctx, Put, fault)
}

func (f *faulty) Delete(ctx context.Context, ks []key.Key) error {
	fault, err := f.ask(ctx, Delete, ks)
	if err != nil {
		return err
	}
	if part := served(fault, ks); len(part) > 0 || fault.Err == nil {
		if err := f.Tier.Delete(ctx, part); err != nil {
			return err
		}
	}
	return f.fail(Delete, fault)
}

// residency is the Resident of a tier that is made to fail. Has and Touch are
// memory only and cannot fail.
type residency struct {
	tier.Resident
	faults *faulty
}

func (r residency) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	fault, err := r.faults.ask(ctx, Trim, nil)
	if err == nil {
		err = r.faults.fail(Trim, fault)
	}
	if err != nil {
		return out, err
	}
	return r.Resident.Trim(ctx, n, out)
}

// recovery is the Recoverer of a tier that is made to fail.
type recovery struct {
	tier.Recoverer
	faults *faulty
}

func (r recovery) Recover(ctx context.Context, emit func([]tier.Record)) error {
	fault, err := r.faults.ask(ctx, Recover, nil)
	if err != nil {
		return err
	}
	if fault.Err == nil {
		return r.Recoverer.Recover(ctx, emit)
	}
	left := fault.Serve
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	_ = r.Recoverer.Recover(ctx, func(recs []tier.Record) { // its error is our stop, or comes second
		recs = recs[:min(left, len(recs))]
		if left -= len(recs); left == 0 {
			stop()
		}
		if len(recs) > 0 {
			emit(recs)
		}
	})
	return r.faults.fail(Recover, fault)
}

func (r recovery) Sync(ctx context.Context) error {
	fault, err := r.faults.ask(ctx, Sync, nil)
	if err == nil {
		err = r.faults.fail(Sync, fault)
	}
	if err != nil {
		return err
	}
	return r.Recoverer.Sync(ctx)
}
