package tier_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

func TestDecoratorsConformance(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		a, err := arena.New(arena.Options{CapacityBytes: 16 * mib})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.Close() })
		wrap := func(m tier.Tier) tier.Tier {
			return tier.WithBreaker(m, tier.BreakerOptions{Observe: func(string, time.Duration) {}, Log: zerolog.Nop()})
		}
		m := tiertest.NewMemory("disk", 16*mib)
		return tiertest.Subject{
			Tier: wrap(m), Arena: a, Alloc: tiertest.Allocator{Arena: a},
			Reopen: func() tier.Tier {
				m = m.Reopen()
				return wrap(m)
			},
		}
	})
}
