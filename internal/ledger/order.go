package ledger

import "github.com/kvstored/kvstored/policy"

// order is the order of victims: the lines of entries that go before what the policies
// name, and which policy or line is asked. See the list in doc.go.
type order struct {
	table      *table
	policies   *policies
	cold       line
	dropBehind line   // what DropBehind was told of, in that order
	stale      int    // entries that this round may still drop from lines; see nextInterior
	looked     uint64 // entries of the cold line that victims have looked at
}

// allow has the policies name an entry that may go from now on.
func (o *order) allow(id uint32) {
	e := o.table.entries.At(id)
	if e.mark&cooled != 0 {
		o.cold.push(id)
	}
	o.policies.inScopes(e, func(r *scope) { r.policy.Allow(policy.ID(id)) })
}

// next takes out the next victim of scope r.
func (o *order) next(r uint32) (id uint32, ok bool) {
	if r == everything {
		if id, ok := o.nextCold(); ok {
			o.policies.leave(id)
			return id, true
		}
	}
	return o.policies.next(r)
}
