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
// timed. The result has the roles of t: see RolesOf.
func WithObserver(t Tier, observe Observer) Tier {
	return &measured{Tier: t, inner: RolesOf(t), observe: observe}
}

type measured struct {
	Tier
	inner   Roles
	observe Observer
}

// Roles implements decorator.
func (m *measured) Roles() Roles {
	r := m.inner
	if r.Resident != nil {
		r.Resident = measuredResident{r.Resident, m}
	}
	if r.Recoverer != nil {
		r.Recoverer = measuredRecoverer{r.Recoverer, m}
	}
	if r.Shared != nil {
		r.Shared = measuredShared{r.Shared, m}
	}
	return r
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

// measuredResident is the Resident of a tier that is timed.
type measuredResident struct {
	Resident
	m *measured
}

// Trim is timed only if it evicted: most calls look, and find room.
func (r measuredResident) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	begun, before := time.Now(), len(out)
	out, err := r.Resident.Trim(ctx, n, out)
	if len(out) > before {
		r.m.done("trim", begun, err)
	}
	return out, err
}

// measuredRecoverer is the Recoverer of a tier that is timed.
type measuredRecoverer struct {
	Recoverer
	m *measured
}

func (r measuredRecoverer) Sync(ctx context.Context) error {
	begun := time.Now()
	err := r.Recoverer.Sync(ctx)
	r.m.done("sync", begun, err)
	return err
}

// measuredShared is the Shared of a tier that is timed.
type measuredShared struct {
	Shared
	m *measured
}

func (r measuredShared) Find(ctx context.Context, ks []key.Key, found func(int)) (int, error) {
	begun := time.Now()
	n, err := r.Shared.Find(ctx, ks, found)
	r.m.done("find", begun, err)
	return n, err
}
