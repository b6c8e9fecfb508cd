package tierfault_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
)

var errBroken = errors.New("broken")

// stub is a tier that does nothing but count keys.
type stub struct{ contained, deleted int }

func (s *stub) Name() string { return "stub" }

func (s *stub) Contains(_ context.Context, ks []key.Key, _ []bool) error {
	s.contained += len(ks)
	return nil
}

func (s *stub) Get(context.Context, key.Key, tier.Allocator) (arena.Block, error) {
	return arena.Block{}, tier.ErrNotFound
}

func (s *stub) Put(context.Context, tier.Entry) error { return nil }

func (s *stub) Delete(_ context.Context, ks []key.Key) error {
	s.deleted += len(ks)
	return nil
}

func (s *stub) Stats() tier.Stats { return tier.Stats{} }
func (s *stub) Close() error      { return nil }

type residentStub struct{ stub }

func (*residentStub) Has(key.Key) bool { return true }
func (*residentStub) Touch([]key.Key)  {}
func (*residentStub) Trim(_ context.Context, _ int64, out []key.Key) ([]key.Key, error) {
	return append(out, key.Key{}), nil
}

type recovererStub struct{ stub }

func (*recovererStub) Recover(ctx context.Context, emit func([]tier.Record)) error {
	for range 5 {
		if err := ctx.Err(); err != nil {
			return err
		}
		emit(make([]tier.Record, 2))
	}
	return nil
}

func (*recovererStub) Records(context.Context, []key.Key) ([]tier.Record, error) { return nil, nil }

func (*recovererStub) Sync(context.Context) error { return nil }

type bothStub struct {
	residentStub
	recovererStub
}

func (b *bothStub) Name() string { return "both" }
func (b *bothStub) Contains(context.Context, []key.Key, []bool) error {
	return nil
}
func (b *bothStub) Get(context.Context, key.Key, tier.Allocator) (arena.Block, error) {
	return arena.Block{}, tier.ErrNotFound
}
func (b *bothStub) Put(context.Context, tier.Entry) error   { return nil }
func (b *bothStub) Delete(context.Context, []key.Key) error { return nil }
func (b *bothStub) Stats() tier.Stats                       { return tier.Stats{} }
func (b *bothStub) Close() error                            { return nil }

// A wrapped tier can neither less nor more than the one inside.
func TestWrapKeepsInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, inner := range []tier.Tier{&stub{}, &residentStub{}, &recovererStub{}, &bothStub{}} {
			w := tierfault.Wrap(inner, tierfault.On(tierfault.Sync, tierfault.Fault{}))
			want, got := tier.RolesOf(inner), tier.RolesOf(w)
			if (got.Resident == nil) != (want.Resident == nil) || (got.Recoverer == nil) != (want.Recoverer == nil) {
				t.Errorf("%T: wrapped it is %+v; want %+v", inner, got, want)
			}
		}
	})
}

func TestAtCountsPerOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := tierfault.Wrap(&stub{}, tierfault.At(tierfault.Put, 1, tierfault.Fault{Err: errBroken}))
		for i, want := range []error{nil, errBroken, nil} {
			if err := w.Delete(t.Context(), nil); err != nil {
				t.Errorf("delete %d: %v", i, err)
			}
			if err := w.Put(t.Context(), tier.Entry{}); !errors.Is(err, want) {
				t.Errorf("put %d: got %v; want %v", i, err, want)
			}
		}
	})
}

func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stub{}
		fault := tierfault.Fault{Err: errBroken, Serve: 3}
		w := tierfault.Wrap(s, func(tierfault.Call) tierfault.Fault { return fault })
		if err := w.Contains(t.Context(), make([]key.Key, 5), make([]bool, 5)); !errors.Is(err, errBroken) || s.contained != 3 {
			t.Errorf("contains served %d, error %v; want 3 and the fault", s.contained, err)
		}
		if err := w.Delete(t.Context(), make([]key.Key, 2)); !errors.Is(err, errBroken) || s.deleted != 2 {
			t.Errorf("delete served %d, error %v; want 2 and the fault", s.deleted, err)
		}
		for _, want := range []int{0, 3, 10} {
			fault.Serve = want
			n := 0
			r := tier.RolesOf(tierfault.Wrap(&recovererStub{}, func(tierfault.Call) tierfault.Fault { return fault })).Recoverer
			if err := r.Recover(t.Context(), func(recs []tier.Record) { n += len(recs) }); !errors.Is(err, errBroken) || n != want {
				t.Errorf("recover served %d, error %v; want %d and the fault", n, err, want)
			}
		}
	})
}

func TestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		fault := tierfault.Fault{Delay: time.Hour}
		w := tierfault.Wrap(&stub{}, func(tierfault.Call) tierfault.Fault { return fault })
		start := time.Now()
		if err := w.Put(t.Context(), tier.Entry{}); err != nil || time.Since(start) != time.Hour {
			t.Errorf("delayed by %s, error %v; want an hour", time.Since(start), err)
		}
		for _, fault = range []tierfault.Fault{{Delay: time.Hour}, {Hang: true}, {Until: gate}} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := w.Put(ctx, tier.Entry{}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v: got %v; want that the context ended", fault, err)
			}
			cancel()
		}
		time.AfterFunc(time.Second, func() { close(gate) })
		fault = tierfault.Fault{Until: gate, Err: tier.ErrOff}
		if err := w.Put(t.Context(), tier.Entry{}); !errors.Is(err, tier.ErrOff) {
			t.Errorf("after the gate: %v", err)
		}
	})
}
