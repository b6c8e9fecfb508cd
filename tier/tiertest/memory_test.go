package tiertest_test

import (
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func openMemory(t *testing.T, wrap func(tier.Tier) tier.Tier) tiertest.Subject {
	a, err := arena.New(arena.Options{CapacityBytes: 32 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // a test that failed may have left blocks
	m := tiertest.NewMemory("disk", 16<<20)
	return tiertest.Subject{
		Tier: wrap(m), Arena: a, Alloc: tiertest.Allocator{Arena: a},
		Reopen: func() tier.Tier { return wrap(m.Reopen()) },
	}
}

func TestMemory(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		return openMemory(t, func(m tier.Tier) tier.Tier { return m })
	})
}

func TestMemoryDecorated(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		return openMemory(t, func(m tier.Tier) tier.Tier {
			return tierfault.Wrap(m, func(tierfault.Call) tierfault.Fault { return tierfault.Fault{} })
		})
	})
}
