package stack

import (
	"fmt"
	"sync"

	"github.com/kvstored/kvstored/tier"
)

// operator is what people ask and change by hand, and what runs for them in the
// background.
type operator struct {
	*dram
	leases *leases
	ages   *ages
	depths *depths // planning's
	quotas struct {
		sync.Mutex // held while tiers are told of quotas, before any other lock
		list       []Quota
	}
	scrubs scrubs
}

// PolicyOf is the policy of a tier; false where there is none.
func (s *operator) PolicyOf(p tier.Place) (name string, ok bool) {
	l := s.levels.at[p]
	if l == nil || l.Bounded == nil {
		return "", false
	}
	return l.Bounded.Ledger().PolicyName(), true
}

// SetPolicy replaces the policy of a tier.
func (s *operator) SetPolicy(p tier.Place, name string) error {
	l := s.levels.at[p]
	switch {
	case l == nil:
		return fmt.Errorf("policy: %w", notThere("there is no "+p.String()+" tier"))
	case l.Tunable == nil:
		return fmt.Errorf("policy: %w", notThere("the "+p.String()+" tier evicts nothing"))
	}
	if err := l.Tunable.SetPolicy(name); err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	s.log.Info().Stringer("tier", p).Str("policy", name).Msg("policy replaced")
	return nil
}

// notThere is an ErrNotFound that names the missing chunk.
type notThere string

func (n notThere) Error() string { return string(n) }
func (notThere) Unwrap() error   { return tier.ErrNotFound }
