package tier

import (
	"context"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Ref is one held entry of the hot tier: a fill being written or a chunk
// being read. It owns a reference of its block.
type Ref struct {
	ID    ledger.ID
	Block arena.Block
	Dirty bool  // it was stored here, and was not in the nearest tier below yet when it was held
	Hits  uint8 // uses so far, saturating
}

// Valid reports whether r names anything.
func (r Ref) Valid() bool { return r.Block.Valid() }

// Victim is an entry that the hot tier has evicted. Its receiver owns
// the reference of its block.
type Victim struct {
	Record
	Block arena.Block
	Dirty bool  // it was stored here, and is not in the nearest tier below
	Hits  uint8 // uses, saturating
	// Charged says that its bytes count as unwritten already; see
	// ledger.EvictSafely.
	Charged bool
}

// Resumed is an entry of the hot tier that an earlier process has left there.
type Resumed struct {
	Record
	Below Set   // tiers below that have it, as that process knew
	Dirty bool  // the nearest of them lacks it
	Hits  uint8 // uses, saturating
}

// Fill is a request for room in the hot tier.
type Fill struct {
	Record // Sum is not known yet
	Owner  ledger.Owner
	Class  ledger.Class
	Wait   bool // wait for room until the context ends, as long as others can make some
	// Try has a fill that may wait end with ErrMustWait where it would begin to.
	Try  bool
	Free bool // evict nothing
	// Patient says that there is rather no room than that something is lost which
	// others are about to write below. Who waits is.
	Patient bool
	// For is the client whose chunk it will be, if the daemon fills it:
	// no fill waits for what only that client can let go of.
	For ledger.Owner
	// Writing reports whether chunks are being written to the tiers below,
	// after which they need not be protected any more. Nil: never.
	Writing func() bool
	// Block, if valid, is what a victim of this tier still has, sealed: the fill
	// takes a reference of it instead of a new one, and evicts nothing for bytes.
	Block arena.Block
	// Drop takes over every entry that had to go, and reports whether its
	// memory stays in use for now. It must not block or call the tier to
	// evict; no lock of the ledger or the arena is held. Nil, with a Block: nothing
	// goes, and the fill fails where it would be one entry too many.
	Drop func(Victim) bool
}

// Hot is the tier whose payloads lie in the arena: the Stack leases from it,
// fills it, and takes its victims.
type Hot interface {
	Tier
	Resident
	Bounded // owners, charges and dirty marks
	Shrinker
	// Reserve makes f's key a fill with a block of f.Size bytes. If the key
	// is already filling or resident it says so and reserves nothing.
	// ErrNoSpace, ErrOverBudget (this owner's own limit; waiting is
	// pointless), ErrOverQuota (the same of a space), ErrTooLarge or ErrMustWait
	// otherwise.
	Reserve(ctx context.Context, f Fill) (Ref, ledger.State, error)
	// Publish makes sealed fills of one chain (in prefix order) visible and
	// takes the fillers' references over. If held, each entry is at the same
	// moment held by the daemon for I/O, and refs stay valid until Release.
	Publish(refs []Ref, dirty, held bool)
	// Abort gives fills up; their keys are free again.
	Abort(refs []Ref)
	// Hold takes the longest leading run of ks that is resident and within
	// budget, and returns its length. It is no use yet: see Touch. The error
	// only says why a budget made it shorter.
	Hold(o ledger.Owner, c ledger.Class, ks []key.Key, refs []Ref) (int, error)
	// Release ends holds taken by Hold or Publish.
	Release(o ledger.Owner, c ledger.Class, refs []Ref)
}

// Shrinker is what keeps the watermarks of the hot tier.
type Shrinker interface {
	// Shrink evicts from above the high watermark down to the low one and
	// hands each victim to drop, as Fill.Drop says. demoting is what earlier
	// victims still occupy: it is on its way out and does not count. What is to be
	// free besides is taken off it, which may make it negative.
	Shrink(ctx context.Context, demoting int64, drop func(Victim) bool)
	// EvictOne evicts the next entry, unless it would be lost, and hands it to drop. It
	// reports whether there was one.
	EvictOne(drop func(Victim) bool) bool
	// MakeRoom evicts, though nothing that would be lost, and returns when so many bytes
	// are free, or when nothing is demoting whose end would free some. It reports
	// whether it waited. The error is that of a tier that is closed, ErrNoSpace where
	// the context ended, or, of a try, ErrMustWait.
	MakeRoom(ctx context.Context, r Room) (waited bool, err error)
	// HandedOver returns when each entry that had left the tier before the call has
	// been handed to its Drop, by any caller. It waits for no I/O.
	HandedOver()
	// Crowded reports whether Shrink would evict anything.
	Crowded(demoting int64) bool
}

// Room is what MakeRoom is to make.
type Room struct {
	Bytes int64
	// Ahead is as much as may be evicted, at least Bytes: what others will ask for next.
	// It may change at any time.
	Ahead func() int64
	// Demoting is what victims still occupy. Each change of it is followed by a free or
	// by a change of the ledger's holds.
	Demoting func() int64
	Drop     func(Victim) bool // as Fill.Drop
	Try      bool              // as Fill.Try
}

// HotValue packs what a hot tier's ledger keeps of an entry: its block, and
// what of its record the ledger does not know anyway.
//
//	A: block number
//	B: depth (32 bits) | flags (8 bits) | tokens (24 bits)
func HotValue(b arena.Block, r Record) ledger.Value {
	v := ledger.Value{A: uint64(b.ID()), B: uint64(r.Depth)<<32 | uint64(r.Tokens&maxTokens)}
	if r.Force {
		v.B |= flagForce
	}
	return v
}

// maxTokens is more than key.MaxChunkTokens, so that no count is cut.
const maxTokens = 1<<24 - 1

// The flags of a HotValue.
const (
	flagForce    = 1 << 24 << iota // Record.Force
	flagDeclined                   // see Declined
)

// Declined reports whether the tier below did not want the entry when it was
// asked last.
func Declined(v ledger.Value) bool { return v.B&flagDeclined != 0 }

// WithDeclined is v with what the tier below said now.
func WithDeclined(v ledger.Value, declined bool) ledger.Value {
	if v.B &^= flagDeclined; declined {
		v.B |= flagDeclined
	}
	return v
}

// HotRecord is the record of a hot tier's entry whose payload sums to sum.
func HotRecord(e ledger.Entry, sum uint64) Record {
	return Record{
		Key: e.Key, Parent: e.Parent, Size: e.Size, Sum: sum,
		Depth: uint32(e.Value.B >> 32), Tokens: uint32(e.Value.B & maxTokens),
		Force: e.Value.B&flagForce != 0,
	}
}
