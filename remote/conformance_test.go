package remote

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// subject is a tier with a prefix of its own.
func subject(t *testing.T, s *s3test.Server) tiertest.Subject {
	m := memory(t, 64*mib)
	o := testOptions(s.Endpoint)
	o.Prefix = strings.ReplaceAll(t.Name(), "/", "-")
	return tiertest.Subject{Tier: connect(t, o), Arena: m.Arena, Alloc: m}
}

func TestConformance(t *testing.T) {
	s := s3test.Run(t)
	tiertest.RunOutside(t, func(t *testing.T) tiertest.Subject {
		return subject(t, s)
	})
}

func TestConformanceBehindBreaker(t *testing.T) {
	s3test.Credentials(t)
	tiertest.Run(t, func(t *testing.T) tiertest.Subject {
		m := memory(t, 64*mib)
		r := connect(t, virtualOptions(s3test.NewMemory(0)))
		return tiertest.Subject{Tier: tier.WithBreaker(r, tier.BreakerOptions{}), Arena: m.Arena, Alloc: m}
	})
}
