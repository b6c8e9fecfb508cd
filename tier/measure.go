package tier

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

// Observer is told how long an operation of a tier took that succeeded. It
// may be called concurrently.
type Observer func(op string, took time.Duration)

// WithObserver returns t with every Get, Put, Delete, Trim, Sync and Find
// timed. The result is a Resident, a Recoverer or a Shared exactly if t is.
func WithObserver(t Tier, observe Observer) Tier {
	m := &measured{Tier: t, observe: observe}
	res, bounded := t.(Resident)
	rec, lasting := t.(Recoverer)
	if far, ok := t.(Shared); ok && !bounded && !lasting {
		return struct {
			*measured
			measuredSharing
		}{m, measuredSharing{m, far}}
	}
	switch {
	case bounded && lasting:
		return struct {
			*measured
			measuredResidency
			measuredRecovery
		}{m, measuredResidency{m, res}, measuredRecovery{m, rec}}
	case bounded:
		return struct {
			*measured
			measuredResidency
		}{m, measuredResidency{m, res}}
	case lasting:
		return struct {
			*measured
			measuredRecovery
		}{m, measuredRecovery{m, rec}}
	}
	return m
}

type measured struct {
	Tier
	observe Observer
}

func (m *measured) done(op string, begun time.Time, err error) {
	if err == nil {
		m.observe(op, time.Since(begun))
	}
}

func (m *measured) Get(ctx context.Context, k key.Key, a Allocator) (arena.Block, error) {
	begun := time.Now()
	b, err := m.Tier.Get(ctx, k, a)
	m.done("get", begun, err)
	return b, err
}

func (m *measured) Put(ctx context.Context, e Entry) error {
	begun := time.Now()
	err := m.Tier.Put(ctx, e)
	m.done("put", begun, err)
	return err
}

func (m *measured) Delete(ctx context.Context, ks []key.Key) error {
	begun := time.Now()
	err := m.Tier.Delete(ctx, ks)
	m.done("delete", begun, err)
	return err
}

// Unwrap returns the tier that is timed.
func (m *measured) Unwrap() Tier { return m.Tier }

// measuredResidency is what a bounded tier adds.
type measuredResidency struct {
	m  *measured
	to Resident
}

func (r measuredResidency) Has(k key.Key) bool { return r.to.Has(k) }

func (r measuredResidency) Touch(ks []key.Key) { r.to.Touch(ks) }

// Trim is timed only if it evicted: most calls look, and find room.
func (r measuredResidency) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	begun, before := time.Now(), len(out)
	out, err := r.to.Trim(ctx, n, out)
	if len(out) > before {
		r.m.done("trim", begun, err)
	}
	return out, err
}

// measuredRecovery is what a tier that outlives the process adds.
type measuredRecovery struct {
	m  *measured
	to Recoverer
}

func (r measuredRecovery) Recover(ctx context.Context, emit func([]Record)) error {
	return r.to.Recover(ctx, emit)
}

func (r measuredRecovery) Sync(ctx context.Context) error {
	begun := time.Now()
	err := r.to.Sync(ctx)
	r.m.done("sync", begun, err)
	return err
}

// measuredSharing is what a shared tier adds.
type measuredSharing struct {
	m  *measured
	to Shared
}

func (r measuredSharing) Absent(k key.Key) bool { return r.to.Absent(k) }

func (r measuredSharing) Find(ctx context.Context, ks []key.Key, found func(int)) (int, error) {
	begun := time.Now()
	n, err := r.to.Find(ctx, ks, found)
	r.m.done("find", begun, err)
	return n, err
}

func (r measuredSharing) Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (Purged, error) {
	return r.to.Purge(ctx, id, after, dry, gone)
}
