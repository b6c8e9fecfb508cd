package cpu_test

import (
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const mib = 1 << 20

// newTier makes a tier whose arena must be empty again when the test ends.
func newTier(t *testing.T, capacity int64, limits ledger.Limits) (*cpu.Tier, *arena.Arena) {
	t.Helper()
	return newTierOf(t, 0, capacity, limits)
}

// newTierOf has at most so many entries; 0 = any number.
func newTierOf(t *testing.T, entries int, capacity int64, limits ledger.Limits) (*cpu.Tier, *arena.Arena) {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: capacity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
	lru, err := policy.New("lru", capacity)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Entries: entries, Policy: lru, Limits: limits})
	return cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 0.95, LowWatermark: 0.90}), a
}

func TestConformance(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		c, a := newTier(t, 16*mib, ledger.Limits{})
		return tiertest.Subject{Tier: c, Arena: a, Alloc: tiertest.Allocator{Arena: a}}
	})
}

func TestConformanceDecorated(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		c, a := newTier(t, 16*mib, ledger.Limits{})
		faulty := tierfault.Wrap(c, func(tierfault.Call) tierfault.Fault { return tierfault.Fault{} })
		if tier.RolesOf(faulty).Resident == nil {
			t.Fatal("a wrapped resident tier is none")
		}
		return tiertest.Subject{Tier: faulty, Arena: a, Alloc: tiertest.Allocator{Arena: a}}
	})
}
