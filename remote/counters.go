package remote

import (
	"sync/atomic"

	"github.com/kvstored/kvstored/tier"
)

// counters are the requests, their bytes and their outcomes.
type counters struct {
	found, foundBytes   atomic.Uint64
	stored, storedBytes atomic.Uint64
	corrupt             atomic.Uint64

	gets, puts, heads, lists, deletes atomic.Uint64 // requests
	received, sent, wasted            atomic.Uint64 // body bytes; wasted: moved for nothing
	present                           atomic.Uint64 // puts of what was there
	otherBytes                        atomic.Uint64 // of those, with another checksum
	occupied                          atomic.Uint64 // puts whose name something else had
	stale                             atomic.Uint64 // gets of what was thought to be there
	retries                           atomic.Uint64
	slowDowns                         atomic.Uint64
	connectFailed                     atomic.Uint64
}

// Stats implements tier.Tier. Entries and their bytes are 0: other machines
// store and delete too, and only a listing could tell.
func (t *Tier) Stats() tier.Stats {
	c := &t.count
	return tier.Stats{
		Gets: c.found.Load(), GetBytes: c.foundBytes.Load(),
		Puts: c.stored.Load(), PutBytes: c.storedBytes.Load(),
		Corrupt: c.corrupt.Load(), Off: t.Off(),
		Counters: map[string]uint64{
			"get_requests": c.gets.Load(), "put_requests": c.puts.Load(), "head_requests": c.heads.Load(),
			"list_requests": c.lists.Load(), "delete_requests": c.deletes.Load(),
			"received_bytes": c.received.Load(), "sent_bytes": c.sent.Load(), "wasted_bytes": c.wasted.Load(),
			"puts_present": c.present.Load(), "puts_other_bytes": c.otherBytes.Load(), "puts_occupied": c.occupied.Load(),
			"gets_stale": c.stale.Load(),
			"retries":    c.retries.Load(),
			"slow_downs": c.slowDowns.Load(), "connect_failures": c.connectFailed.Load(),
		},
	}
}
