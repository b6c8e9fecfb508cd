package policy

// ID names an entry. IDs are dense: the caller hands out small numbers and
// uses them again after Remove or Evict, so that a policy can keep its state
// in slices indexed by ID, without a pointer or a map entry per chunk.
type ID uint32

// Meta is what a policy may know of an entry.
type Meta struct {
	Hash   uint64 // of the key; stable across evictions, so that ghosts recognise it, by the lower half
	Parent uint64 // Hash of the chunk before it, resident or not; 0 for none; only a Planner asks
	Size   int64  // in the unit of the capacity the policy was built with; > 0
	Uses   uint8  // how often it was asked for under another policy; only a Planner asks
}

// Policy decides which entry goes next. It is pure data: no lock, clock,
// key, goroutine or I/O; the owner serialises all calls. A call that names an entry which is
// not resident, or adds one that is, is a broken invariant (see base.Broken), and does nothing.
//
// The scan of Evict never starts over: an entry that ok refused is passed
// over unchanged and is offered again only after Allow, Touch or Add named
// it. ok must depend only on state whose every change to acceptable is
// announced by Allow. M evictions over K refused entries inspect O(M+K)
// nodes, also when every call evicts one.
type Policy interface {
	// Miss is a request for an entry that is not resident, before any Evict
	// made for it. The policy looks into its ghosts, adapts, and remembers
	// where the entry will go.
	Miss(hash uint64, size int64)
	// Add makes id resident.
	Add(id ID, m Meta)
	// Touch is a hit on a resident id.
	Touch(id ID)
	// Remove forgets id without leaving a ghost.
	Remove(id ID)
	// Evict removes and returns the next victim that ok accepts, or false
	// if ok refused every entry.
	Evict(ok func(ID) bool) (ID, bool)
	// Allow says that an id which ok refused would be accepted from now on.
	// Naming an id that was never refused is harmless.
	Allow(id ID)
	// Steps counts nodes inspected plus heap pushes and removals since New.
	// Taking out the node that is inspected is part of inspecting it.
	Steps() uint64
}

// Renewer is a Policy in whose order recency has a part. Renew gives a
// resident id the recency of one just used without counting a use. The owner
// renews the ancestors of a new entry: they are needed as long as it is, but no
// request asked for them again. Other policies have no use for that.
type Renewer interface{ Renew(id ID) }

// Leaver is a Policy with ghosts. Its owner may know an entry that nothing needs any
// more, and have it go before those that Evict would choose.
type Leaver interface {
	// Leave is Evict where the owner has chosen id: it leaves the same ghost.
	Leave(id ID)
	// Proven reports whether id was asked for again, before it left the last
	// time or since. Then the policy's order is better than the owner's choice.
	Proven(id ID) bool
}

// Bounder is a Policy whose ghosts are not bounded by the capacity alone. Bound is called
// once, before the first Add: of entries that are gone the policy remembers at most as many
// as are resident, or as most.
type Bounder interface{ Bound(most int) }

// MetaReader is a Policy that keeps no copy of what its owner knows of a
// resident. ReadMetaFrom is called once, before the first Add, with a function
// that returns the Meta that a resident was added with; Parent and Uses may be
// left out. The policy calls it within Touch, Remove and Evict, for the entry
// that is concerned.
type MetaReader interface{ ReadMetaFrom(of func(ID) Meta) }
