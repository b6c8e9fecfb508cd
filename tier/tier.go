package tier

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/arena"
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
)

// missing is an ErrNotFound that says what there is not.
type missing string

func (m missing) Error() string { return string(m) }
func (missing) Unwrap() error   { return ErrNotFound }

// Record is what a tier knows of an entry besides its payload.
type Record struct {
	Key    key.Key
	Parent key.Hash // zero for the first chunk of a prompt
	Depth  uint32   // chunks before this one
	Tokens uint32   // tokens in this chunk
	Size   uint32   // payload bytes
	Sum    uint64   // XXH3-64 of the payload
	// Insists says that it is to be stored also where a policy finds it not
	// worth its room. Tiers that outlive the process forget that.
	Insists bool
}

// Entry is a payload on its way into a tier.
type Entry struct {
	Record
	Block arena.Block // sealed
}

// Allocator hands out room for payloads that come up.
type Allocator interface {
	// Alloc returns an unsealed block of n bytes; the caller owns one
	// reference. It may wait for room until ctx ends, then ErrNoSpace.
	Alloc(ctx context.Context, n int) (arena.Block, error)
}

// Tier is a place for payloads. Implementations are safe for concurrent use.
// Every method ends with its context, whatever the device does.
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

// Resident is what a bounded tier adds. All but Evict are memory only.
type Resident interface {
	Tier
	// Has reports whether k is resident now: the truth the index follows.
	Has(k key.Key) bool
	// Touch marks the keys of one chain (in prefix order) as used, tail
	// first, so that a head is younger than its tail. Absent keys are passed over.
	Touch(ks []key.Key)
	// Trim evicts until n bytes fit under the high watermark, down to the
	// low one if it had to start, and appends the evicted keys to out. It
	// returns with nothing evicted when there is room.
	Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error)
}

// Recoverer is a tier that outlives the process.
type Recoverer interface {
	Tier
	// Recover scans what an earlier process left and hands it over in
	// batches, in any order; the slice is reused between calls. Until it has
	// returned, Contains and Get answer for keys not yet scanned too.
	Recover(ctx context.Context, emit func([]Record)) error
	// Sync makes everything Put so far survive a power failure.
	Sync(ctx context.Context) error
}

// Shared is a tier that others use too, too far away to be asked key by key.
type Shared interface {
	Tier
	// Absent reports whether k was not there a moment ago. Memory only.
	Absent(k key.Key) bool
	// Find returns how many of ks, a run of one chain in prefix order, lead
	// in being there, in few round trips. It may be wrong where there is a
	// hole. found, if not nil, is told whenever more is certain.
	Find(ctx context.Context, ks []key.Key, found func(n int)) (int, error)
	// Purge deletes what follows after of a space, whoever stored it, or only
	// counts it: as much as one request can name. It tells gone of each.
	Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (Purged, error)
}

// Summed is a tier that knows the checksums of what it has by heart.
type Summed interface {
	// Sum is the checksum of k's payload and its bytes; false if k is not
	// known here. Memory only.
	Sum(k key.Key) (sum uint64, size uint32, known bool)
}

// Unsettled is a tier whose calls may go on after their callers gave them up,
// as with a device that hangs.
type Unsettled interface {
	// Unsettled reports whether a Put or a deletion of k is under way, or a
	// scan of what there is, so that k may come to be there, also after a kill
	// of the process. A Delete of k settles it, or fails. Memory only.
	Unsettled(k key.Key) bool
	// Left lists what is there of a space, or may come to be there in that way,
	// whatever its caller was told. Memory only.
	Left(id key.SpaceID) []key.Key
}

// Stats is a snapshot of one tier.
type Stats struct {
	Entries          int64             `json:"entries"`
	PayloadBytes     int64             `json:"payload_bytes"`      // sum of payload lengths
	UsedBytes        int64             `json:"used_bytes"`         // what they occupy
	CapacityBytes    int64             `json:"capacity_bytes"`     // 0 = unbounded
	LargestFreeBytes int64             `json:"largest_free_bytes"` // largest free run; 0 where that means nothing
	Gets             uint64            `json:"gets"`               // Get calls that found the entry
	GetBytes         uint64            `json:"get_bytes"`
	Puts             uint64            `json:"puts"` // entries that were new
	PutBytes         uint64            `json:"put_bytes"`
	Evictions        uint64            `json:"evictions"`
	EvictedBytes     uint64            `json:"evicted_bytes"`
	Corrupt          uint64            `json:"corrupt"`          // entries dropped because their bytes were wrong
	Off              bool              `json:"off"`              // switched off after failures
	Policy           string            `json:"policy,omitempty"` // of eviction; "" where nothing is evicted
	Steps            uint64            `json:"eviction_steps"`   // what the policies inspected to find victims
	Quotas           []QuotaUse        `json:"quotas,omitempty"`
	Counters         map[string]uint64 `json:"counters,omitempty"` // whatever else the tier counts
}
