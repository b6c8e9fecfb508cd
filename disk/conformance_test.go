package disk

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// subject is a tier of its own folder for the conformance suite.
func subject(t *testing.T, wrap func(tier.Tier) tier.Tier, paths ...string) tiertest.Subject {
	m := newMemory(t)
	o := testOptions(tiertest.Folder(t))
	o.Paths = append(o.Paths, paths...)
	d, stop := start(t, o, nil)
	recoverAll(t, d)
	return tiertest.Subject{
		Tier: wrap(d), Arena: m.Arena, Alloc: m,
		Reopen: func() tier.Tier {
			stop()
			d, stop = start(t, o, nil)
			return wrap(d)
		},
	}
}

func TestConformance(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		return subject(t, func(d tier.Tier) tier.Tier { return d })
	})
}

// As the daemon decorates it, and with faults that never come.
func TestConformanceDecorated(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		return subject(t, func(d tier.Tier) tier.Tier {
			d = tierfault.Wrap(d, func(tierfault.Call) tierfault.Fault { return tierfault.Fault{} })
			return tier.WithBreaker(d, tier.BreakerOptions{Observe: func(string, time.Duration) {}, Log: zerolog.Nop()})
		})
	})
}

func TestConformanceOfSeveralPaths(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		return subject(t, func(d tier.Tier) tier.Tier { return d }, tiertest.Folder(t), tiertest.Folder(t))
	})
}
