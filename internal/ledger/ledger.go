package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// ID names an entry, from Begin to Abort, or from Begin to Free and the last
// Unhold; then it names another one.
type ID = policy.ID

// Value is what the tier keeps with an entry, and the ledger never reads.
type Value struct{ A, B uint64 }

// Class says what a hold is for, and so which budget pays for it.
type Class uint8

const (
	Lease     Class = iota // reads and fills of clients
	Pin                    // named protection
	Load                   // being promoted
	Unwritten              // waiting to be written below
	IO                     // under I/O: protects, and has no budget

	classes = iota
)

func (c Class) String() string {
	return [classes]string{"lease", "pin", "load", "unwritten", "io"}[c]
}

// State is what a key is in this tier.
type State uint8

// The states of a key. A fill that is aborted is Absent again.
const (
	Absent   State = iota
	Filling        // a client or the daemon is writing it
	Resident       // complete
)

// Entry is a snapshot of one entry.
type Entry struct {
	ID     ID
	Key    key.Key
	Parent key.Hash // of the chunk before it; zero for the first
	Size   uint32   // payload bytes
	Value  Value
	Dirty  bool  // the tiers below lack it
	Hits   uint8 // touches since it was published, up to MaxHits
	Below  Below // tiers below that have it, as SetBelow said
	// Charged says that EvictSafely has charged its bytes to the daemon as
	// Unwritten, for the writer below.
	Charged bool
	Cold    bool // it is to go first; see MarkCold and Need
}

// Limits bound what may be protected, in occupied bytes; 0 is unlimited. An
// owner may have half of a class, or all of it while no other is registered. One
// entry at a time may be Load or Unwritten beyond its limit, and Unwritten beyond Total.
type Limits struct{ Lease, Pin, Load, Unwritten, Total int64 }

// Options configures a Ledger.
type Options struct {
	CapacityBytes int64
	// Entries is how many there may be, in any life, holes included; 0 is as many
	// as come. Begin and Restore refuse one more: see FreeEntries.
	Entries    int
	Policy     policy.Policy // the ledger is its only user from now on
	PolicyName string        // what package policy calls it; "" is lru
	Quotas     []Quota       // of groups of spaces; see Assign
	Limits     Limits
	// DeferTraining leaves the training of a policy to the calls of Train.
	// Otherwise an Observe now and then trains it.
	DeferTraining bool
	SizeOf        func(size uint32) int64 // occupied bytes of a payload; nil rounds up to 4 KiB
}

// Ledger is the books of one bounded tier. It is safe for concurrent use.
type Ledger struct {
	mu       locked
	planning Planning
	tuning   Tuning
}

// book is everything the mutex guards. Its methods expect it locked, and so do
// those of its parts, of which each knows those before it only, and the budgets know
// nothing of policies: what concerns more than one part is a method of the book.
type book struct {
	table
	budgets  budgets
	policies policies
	recency  recency
	order    order
	aside    func(Entry) // see NoteAside; nil: none
}

// New returns an empty ledger.
func New(opt Options) *Ledger {
	l := new(Ledger)
	l.planning.mu, l.tuning.mu = &l.mu, &l.mu
	b := &l.mu.book
	b.table.init(opt.SizeOf, opt.Entries)
	b.count.CapacityBytes = opt.CapacityBytes
	b.budgets.init(&b.table, opt.Limits)
	b.policies.init(&b.table, opt)
	b.recency.table, b.recency.policies = &b.table, &b.policies
	b.order.table, b.order.policies = &b.table, &b.policies
	return l
}

// EachDirty calls visit for the resident entries that the tiers below lack, in no
// order, with the lock held for up to 4,096 entries at a time. visit keeps nothing of
// the entry. Entries that come, go or are written meanwhile may be missing.
func EachDirty(l *Ledger, visit func(*Entry)) {
	var x Entry
	l.mu.each(maxRound, func(b *book, id uint32, e *entry) {
		if e.life == resident && e.mark&dirty != 0 {
			b.export(id, &x)
			visit(&x)
		}
	})
}

// Wake tells those that wait for Released that there is more room, which no call here shows.
func (l *Ledger) Wake() {
	defer l.mu.unlock()
	l.mu.lock().released = true
}

// Released returns a channel that is closed when something is let go next: a
// budget or the tier has more room, or an entry can be evicted that could
// not. Take it before the call that fails, and nothing is missed.
func (l *Ledger) Released() <-chan struct{} {
	l.mu.lock()
	defer l.mu.unlock()
	return l.mu.wake.Next()
}

// Get returns the entry that the caller fills or holds as id.
func (l *Ledger) Get(id ID) Entry {
	b := l.mu.lock()
	defer l.mu.unlock()
	return b.snapshot(uint32(id))
}

// Find returns the entry of k, if it is filling or resident.
func (l *Ledger) Find(k key.Key) (Entry, State) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(k)
	switch b.entries.At(id).life {
	case filling:
		return b.snapshot(id), Filling
	case resident:
		return b.snapshot(id), Resident
	}
	return Entry{}, Absent
}

// Lookup sets have[i] to whether ks[i] is resident. It touches nothing.
func (l *Ledger) Lookup(ks []key.Key, have []bool) {
	l.mu.rounds(len(ks), func(b *book, from, to int) {
		for i, k := range ks[from:to] {
			have[from+i] = b.entries.At(b.find(k)).life == resident
		}
	})
}

// Stats is a snapshot of a ledger. At any moment
// UsedBytes = ProtectedBytes + EvictableBytes + LeavingBytes.
type Stats struct {
	CapacityBytes  int64
	UsedBytes      int64 // occupied by entries in any life, and charged
	ProtectedBytes int64 // filling, held, ancestors of these that no tier below has, and charged; each chunk once
	EvictableBytes int64 // resident and not protected: can be evicted, leaves first
	LeavingBytes   int64 // evicted or removed, Free still to come
	ClassBytes     [classes]int64
	Entries        int   // resident
	DirtyEntries   int   // resident, and the tiers below lack them
	DirtyBytes     int64 // payload bytes of these
	ClaimedBytes   int64 // occupied by entries that are claimed; see Claim
	ColdBytes      int64 // occupied by those that go first; see MarkCold and Need
	Filling        int
	Holes          int // missing parents of entries
	Owners         int
	Evictions      uint64
	EvictedBytes   uint64
	// Of these, the entries that were never touched since they were published.
	EvictedUnused, EvictedUnusedBytes uint64
	AsideEntries                      int    // put aside for good; see NoteAside
	AsideBytes                        int64  // occupied by these, and charged to the daemon
	Steps                             uint64 // of the policy: what it inspected to find victims
}

// Stats returns the present sums.
func (l *Ledger) Stats() Stats {
	b := l.mu.lock()
	defer l.mu.unlock()
	s := b.count
	s.EvictableBytes = s.UsedBytes - s.ProtectedBytes - s.LeavingBytes
	s.Owners = b.budgets.open
	s.ClaimedBytes = b.policies.scopes[claims].quota.UsedBytes
	s.Steps = b.policies.steps() + b.order.looked
	return s
}
