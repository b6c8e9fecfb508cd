package tier

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// The errors every tier speaks. They arrive wrapped with the operation.
var (
	ErrNotFound   = errors.New("not found")
	ErrNoSpace    = errors.New("no space")
	ErrCorrupt    = errors.New("corrupt")
	ErrTooLarge   = errors.New("too large")
	ErrClosed     = errors.New("closed")
	ErrOverBudget = errors.New("over budget")
	ErrOverQuota  = errors.New("over quota") // everything its space has under its quota is in use
	ErrOff        = errors.New("tier is off")
	ErrMustWait   = errors.New("there is no room without waiting") // of a fill that only tries
)

// Record is what a tier knows of an entry besides its payload.
type Record struct {
	Key    key.Key
	Parent key.Hash // zero for the first chunk of a prompt
	Depth  uint32   // chunks before this one
	Tokens uint32   // tokens in this chunk
	Size   uint32   // payload bytes
	Sum    uint64   // XXH3-64 of the payload
	// Force says that it is to be stored also where a policy finds it not
	// worth its room. Tiers that outlive the process forget that.
	Force bool
}

// Entry is a payload on its way into a tier.
type Entry struct {
	Record
	Block arena.Block // sealed
}

// Allocator hands out room for payloads that are promoted.
type Allocator interface {
	// Alloc returns an unsealed block of n bytes; the caller owns one
	// reference. It may wait for room until ctx ends, then ErrNoSpace.
	Alloc(ctx context.Context, n int) (arena.Block, error)
}

// Tier is a place for payloads. Implementations are safe for concurrent use.
// Every method ends with its context, also where the device hangs.
type Tier interface {
	// Name is "cpu", "disk" or "remote".
	Name() string
	// Contains sets have[i] for every key that Get would probably find.
	Contains(ctx context.Context, ks []key.Key, have []bool) error
	// Get returns a sealed and verified block; the caller owns one
	// reference. A miss is ErrNotFound, wrong bytes are ErrCorrupt (the
	// entry is gone then).
	Get(ctx context.Context, k key.Key, a Allocator) (arena.Block, error)
	// Put stores the entry. It borrows e.Block for the call. Storing a key
	// that is already there is success and changes nothing. ErrNoSpace asks
	// the caller to Evict and try again.
	Put(ctx context.Context, e Entry) error
	// Delete forgets the keys; absent ones are no error.
	Delete(ctx context.Context, ks []key.Key) error
	Stats() Stats
	// Close releases everything; calls after it return ErrClosed.
	Close() error
}

// Stats is a snapshot of one tier.
type Stats struct {
	Entries            int64               `json:"entries"`
	PayloadBytes       int64               `json:"payload_bytes"`      // sum of payload lengths
	UsedBytes          int64               `json:"used_bytes"`         // what they occupy
	CapacityBytes      int64               `json:"capacity_bytes"`     // 0 = unbounded
	LargestFreeBytes   int64               `json:"largest_free_bytes"` // largest free run; 0 where that means nothing
	Gets               uint64              `json:"gets"`               // Get calls that found the entry
	GetBytes           uint64              `json:"get_bytes"`
	Puts               uint64              `json:"puts"` // entries that were new
	PutBytes           uint64              `json:"put_bytes"`
	Evictions          uint64              `json:"evictions"`
	EvictedBytes       uint64              `json:"evicted_bytes"`
	EvictedUnused      uint64              `json:"evicted_unused"` // of Evictions: chunks that no request asked for since they came
	EvictedUnusedBytes uint64              `json:"evicted_unused_bytes"`
	Corrupt            uint64              `json:"corrupt"`          // entries dropped because their bytes were wrong
	Off                bool                `json:"off"`              // switched off after failures
	Policy             string              `json:"policy,omitempty"` // of eviction; "" where nothing is evicted
	Steps              uint64              `json:"eviction_steps"`   // what the policies inspected to find victims
	Quotas             []ledger.QuotaStats `json:"quotas,omitempty"`
	Counters           map[string]uint64   `json:"counters,omitempty"` // whatever else the tier counts
	Paths              []PathStats         `json:"paths,omitempty"`    // those that are there, in the order of the configuration
}

// PathStats are the numbers of one folder of a tier.
type PathStats struct {
	Path     string            `json:"path"` // as configured
	Counters map[string]uint64 `json:"counters"`
}

// DroppedError is returned by a Sync that has dropped chunks which calls of Put
// had stored: an earlier Sync of them failed, so that no later one proves that
// they survive a power failure. The caller may put them again.
type DroppedError struct {
	Keys []key.Key // the caller's, in no order
	// Err is why the rest may not survive either; nil where all the rest does.
	Err error
}

func (e *DroppedError) Error() string {
	s := fmt.Sprintf("%d chunks were dropped that could not be synced", len(e.Keys))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *DroppedError) Unwrap() error { return e.Err }

// Refusal gives what a ledger refuses with the name tiers use for it, and
// keeps both. What others hold for now is no space; nil stays nil.
func Refusal(err error) error {
	for _, r := range []struct{ is, name error }{
		{ledger.ErrOverBudget, ErrOverBudget},
		{ledger.ErrOverQuota, ErrOverQuota},
		{ledger.ErrBusy, ErrNoSpace},
		{ledger.ErrFull, ErrNoSpace},
	} {
		if errors.Is(err, r.is) {
			return fmt.Errorf("%w: %w", r.name, err)
		}
	}
	return err
}

// Place names a tier by its kind. It is also the bit of the index, and of the
// ledgers above it, that says a chunk is there. Which tier is nearer than which
// is the order in which a store is given them.
type Place uint8

// The places a chunk can be. The protocol and the metrics know these three; a
// store takes one more.
const (
	CPU Place = iota
	Disk
	Remote

	Places = 4 // how many there can be
)

var names = [...]string{CPU: "cpu", Disk: "disk", Remote: "remote"}

func (p Place) String() string {
	if int(p) < len(names) {
		return names[p]
	}
	return "tier" + strconv.Itoa(int(p))
}

// MarshalText makes a place a key of a JSON object.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads it back.
func (p *Place) UnmarshalText(text []byte) (err error) {
	*p, err = Parse(string(text))
	return err
}

// Title is the name that people use.
func (p Place) Title() string {
	if p == CPU {
		return "DRAM"
	}
	return p.String()
}

// Parse reads a name, or the title.
func Parse(name string) (Place, error) {
	if strings.EqualFold(name, CPU.Title()) {
		return CPU, nil
	}
	i := slices.Index(names[:], name)
	if i < 0 {
		return 0, fmt.Errorf("%.80q is no tier; write %s (DRAM is cpu)", name, strings.Join(names[:], ", "))
	}
	return Place(i), nil
}

// The share of a tier's room above which it evicts, ahead of the puts that will need it, and
// the share that it then evicts down to.
const (
	HighWatermark = 0.95
	LowWatermark  = 0.90
)

// Set is a set of places.
type Set uint8

// All is every place.
const All Set = 1<<Places - 1

// Of returns the set of one place.
func Of(p Place) Set { return 1 << p }

// Has reports whether p is in s.
func (s Set) Has(p Place) bool { return s&Of(p) != 0 }

// Nearest is the first place of a set that is not empty.
func (s Set) Nearest() Place { return Place(bits.TrailingZeros8(uint8(s))) }

// Ref is one held entry of the hot tier: a fill being written or a chunk
// being read. It owns a reference of its block.
type Ref struct {
	ID    ledger.ID
	Block arena.Block
	Dirty bool // it was stored here, and was not in the nearest tier below yet when it was held
}

// Valid reports whether r names anything.
func (r Ref) Valid() bool { return r.Block.Valid() }

// Victim is an entry that the hot tier has evicted. Its receiver owns
// the reference of its block.
type Victim struct {
	Record
	Block arena.Block
	Dirty bool // it was stored here, and is not in the nearest tier below
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

// Patience is what a request for room does where something would be lost for it.
type Patience uint8

const (
	AtOnce  Patience = iota // it lets that go
	Patient                 // it takes no room rather than what others are about to write below
	Try                     // as Wait, but it ends with ErrMustWait where it would begin to wait
	Wait                    // Patient; it waits for room until its context ends, as long as others can make some
)

// Waits reports whether it may wait.
func (p Patience) Waits() bool { return p >= Try }

// Fill is a request for room in the hot tier.
type Fill struct {
	Record // Sum is not known yet
	Owner  ledger.Owner
	Class  ledger.Class
	Patience
	Free bool // evict nothing
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

// Hot is the tier whose payloads lie in the arena: the store leases from it,
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
	Try      bool              // end with ErrMustWait where it would begin to wait
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
	flagDropped                    // see Dropped
)

// Declined reports whether the tier below did not want the entry when it was
// asked last.
func Declined(v ledger.Value) bool { return v.B&flagDeclined != 0 }

// WithDeclined is v with what the tier below said now.
func WithDeclined(v ledger.Value, declined bool) ledger.Value { return with(v, flagDeclined, declined) }

// Dropped reports whether the writer to the tier below gave the entry up, or put it off, when
// it wrote it last.
func Dropped(v ledger.Value) bool { return v.B&flagDropped != 0 }

// WithDropped is v with what the writer did now.
func WithDropped(v ledger.Value, dropped bool) ledger.Value { return with(v, flagDropped, dropped) }

func with(v ledger.Value, flag uint64, set bool) ledger.Value {
	if v.B &^= flag; set {
		v.B |= flag
	}
	return v
}

// RecordAt is the record of chunk i of c before its checksum is known.
func RecordAt(c *key.Chain, i int, size uint32) Record {
	return Record{Key: c.Key(i), Parent: c.Parent(i), Depth: c.Depth(i), Tokens: c.Tokens[i], Size: size}
}

// HotRecord is the record of a hot tier's entry whose payload sums to sum.
func HotRecord(e ledger.Entry, sum uint64) Record {
	return Record{
		Key: e.Key, Parent: e.Parent, Size: e.Size, Sum: sum,
		Depth: uint32(e.Value.B >> 32), Tokens: uint32(e.Value.B & maxTokens),
		Force: e.Value.B&flagForce != 0,
	}
}
