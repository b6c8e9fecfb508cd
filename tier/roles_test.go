package tier_test

import (
	"context"
	"reflect"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// everything has all roles.
type everything struct {
	*tiertest.Memory
	ledger *ledger.Ledger
}

func (e everything) Ledger() *ledger.Ledger                                  { return e.ledger }
func (e everything) Room(uint32) int                                         { return 0 }
func (e everything) Openings() uint64                                        { return 0 }
func (e everything) Reopened() <-chan struct{}                               { return nil }
func (e everything) Absent(key.Key) bool                                     { return false }
func (e everything) IsPending(key.Key) bool                                  { return false }
func (e everything) Left(key.SpaceID) []key.Key                              { return nil }
func (e everything) Off() bool                                               { return false }
func (e everything) Trouble() error                                          { return nil }
func (e everything) ProbeNow()                                               {}
func (e everything) Find(context.Context, []key.Key, func(int)) (int, error) { return 0, nil }

func (e everything) Renewed(context.Context, []key.Key, []bool) error { return nil }

func (e everything) Purge(context.Context, key.SpaceID, string, bool, func(key.Key)) (tier.Purged, error) {
	return tier.Purged{}, nil
}

func (e everything) Scrub(context.Context, int64, func(key.Key)) (tier.Scrubbed, error) {
	return tier.Scrubbed{}, nil
}

// some is a tier with some of the roles of another one.
type some struct {
	tier.Tier
	roles tier.Roles
}

func (s some) Roles() tier.Roles { return s.roles }

// A decorator keeps every role of the tier that it wraps, in every combination,
// and gives none that is not there, but for the health of a breaker.
func TestDecoratorsKeepRoles(t *testing.T) {
	all := everything{tiertest.NewMemory("disk", mib), ledger.New(ledger.Options{})}
	whole := tier.RolesOf(all)
	roles := reflect.TypeFor[tier.Roles]()
	for i := range roles.NumField() {
		if reflect.ValueOf(whole).Field(i).IsNil() {
			t.Fatalf("a tier that has every role has no %s", roles.Field(i).Name)
		}
	}
	for mask := range 1 << roles.NumField() {
		inner := some{Tier: all}
		for i := range roles.NumField() {
			if mask&(1<<i) != 0 {
				reflect.ValueOf(&inner.roles).Elem().Field(i).Set(reflect.ValueOf(whole).Field(i))
			}
		}
		for name, outer := range map[string]tier.Tier{
			"breaker": tier.WithBreaker(inner, tier.BreakerOptions{Log: zerolog.Nop()}),
			"fault":   tierfault.Wrap(inner, func(tierfault.Call) tierfault.Fault { return tierfault.Fault{} }),
		} {
			got := reflect.ValueOf(tier.RolesOf(outer))
			for i := range roles.NumField() {
				field := roles.Field(i).Name
				own := name == "breaker" && (field == "Health" || field == "Prober")
				if want := mask&(1<<i) != 0 || own; want == got.Field(i).IsNil() {
					t.Fatalf("%s around roles %b: %s is there: %t", name, mask, field, !want)
				}
			}
		}
	}
}
