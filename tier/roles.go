package tier

import (
	"context"
	"math"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// Roles is what a tier is beyond a Tier: each field is nil where the tier does
// not have that role. A store resolves it once, when it is made.
type Roles struct {
	Resident  Resident
	Bounded   Bounded
	Planner   Planner // of a Bounded tier: its ledger
	Tunable   Tunable // so too
	Recoverer Recoverer
	Reopener  Reopener
	Shared    Shared
	Summed    Summed
	Pending   Pending
	Scrubber  Scrubber
	Health    Health
	Prober    Prober
}

// A decorator is a tier around another one. It has the roles of that, with its
// own calls in the place of some, so that no role is lost.
type decorator interface {
	Tier
	Roles() Roles
}

// RolesOf returns the roles of a tier: those that it implements, or what the
// method Roles of a decorator says.
func RolesOf(t Tier) Roles {
	if d, ok := t.(decorator); ok {
		return d.Roles()
	}
	var r Roles
	r.Resident, _ = t.(Resident)
	r.Bounded, _ = t.(Bounded)
	r.Planner, _ = t.(Planner)
	r.Tunable, _ = t.(Tunable)
	r.Recoverer, _ = t.(Recoverer)
	r.Reopener, _ = t.(Reopener)
	r.Shared, _ = t.(Shared)
	r.Summed, _ = t.(Summed)
	r.Pending, _ = t.(Pending)
	r.Scrubber, _ = t.(Scrubber)
	r.Health, _ = t.(Health)
	r.Prober, _ = t.(Prober)
	if b := r.Bounded; b != nil && r.Planner == nil {
		r.Planner = planner{b}
	}
	if b := r.Bounded; b != nil && r.Tunable == nil {
		r.Tunable = b.Ledger().Tuning()
	}
	return r
}

// Off reports whether the tier is switched off now.
func (r *Roles) Off() bool { return r.Health != nil && r.Health.Off() }

// Resident is a tier that evicts. All but Trim are memory only.
type Resident interface {
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

// Bounded is a Resident tier with a ledger. All of it is memory only.
type Bounded interface {
	// Ledger says which entries are resident, and which one goes next. A Reopener may
	// have another one at any time: it is not to be kept.
	Ledger() *ledger.Ledger
	// Room is how many payloads of size bytes fit up to the high watermark, what
	// is above that will have something evicted; math.MaxInt while the tier
	// cannot tell.
	Room(size uint32) int
}

// Tunable is what a tier is told for good: a Reopener passes it on to the next
// ledger. Any other tier is told by way of its ledger.
type Tunable interface {
	// SetPolicy replaces the policy of eviction; nothing is evicted by that.
	SetPolicy(name string) error
	// Assign puts a space under a quota, given by its place in the tier's
	// options. Calls for a space that is under one change nothing.
	Assign(space key.SpaceID, quota int)
	// SetQuotas replaces the quotas, those of the tier's options, and what Assign
	// said: see ledger.Tuning.SetQuotas.
	SetQuotas(qs []ledger.QuotaChange, under map[key.SpaceID]int) error
	// StackOn says which tiers below the tier can rely on now: works is called
	// without locks. It is called once, before the tier is used. What these have
	// may leave before what stands on it: see ledger.Tuning.StackOn.
	StackOn(works func() ledger.Below)
}

// Planner is a bounded tier whose policy may plan (see policy.Planner): it is
// told of whole prompts, and may find a chunk not worth its room. All of it is
// memory only.
type Planner interface {
	// Plans reports whether the present policy does. If not, Observe does
	// nothing and everything is worth storing.
	Plans() bool
	// Observe tells the policy of a prompt and reports whether there is
	// something to Train.
	Observe(r *ledger.Request) (learn bool)
	// Admit returns how many of hs, chunks of size bytes one after the other
	// behind the chunk parent, are worth storing: there is room, or they are
	// worth more than what would go for them and, with twice, have been asked
	// for twice.
	Admit(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, twice bool) int
	// MarkCold makes the chunks that are the chain's alone the first to go.
	MarkCold(space key.SpaceID, hs []key.Hash)
	// Train runs the trainings of the policy that are due.
	Train()
}

// planner is the Planner that a ledger is.
type planner struct{ Bounded }

func (p planner) Plans() bool                               { return p.Ledger().Planning().Plans() }
func (p planner) Observe(r *ledger.Request) bool            { return p.Ledger().Planning().Observe(r) }
func (p planner) MarkCold(space key.SpaceID, hs []key.Hash) { p.Ledger().MarkCold(space, hs) }
func (p planner) Train()                                    { p.Ledger().Planning().Train() }

func (p planner) Admit(space key.SpaceID, parent key.Hash, hs []key.Hash, size uint32, twice bool) int {
	room := p.Room(size)
	if room == math.MaxInt {
		return len(hs)
	}
	return p.Ledger().Planning().Admit(space, parent, hs, size, room, twice)
}

// Recoverer is a tier that outlives the process.
type Recoverer interface {
	// Recover scans what an earlier process left and hands it over in
	// batches, in any order; the slice is reused between calls. Until it has
	// returned, Contains and Get answer for keys not yet scanned too.
	Recover(ctx context.Context, emit func([]Record)) error
	// Records returns what Recover would of those of ks that are there, in their order.
	Records(ctx context.Context, ks []key.Key) ([]Record, error)
	// Sync makes everything Put so far survive a power failure, but for what a
	// *DroppedError names.
	Sync(ctx context.Context) error
}

// Reopener is a Recoverer that may be lost, and opened again, while it is used.
type Reopener interface {
	// Reopened tells after each opening: what the tier has is to be recovered
	// again then.
	Reopened() <-chan struct{}
	// Openings is how often the tier was opened. It changes before any call is made
	// of the tier as it was opened.
	Openings() uint64
}

// Shared is a tier that others use too, too far away to be asked key by key.
type Shared interface {
	// Absent reports whether k was not there a moment ago. Memory only.
	Absent(k key.Key) bool
	// Find returns how many of ks, a run of one chain in prefix order, lead
	// in being there, in few round trips. It may be wrong where there is a
	// hole. found, if not nil, is told whenever more is certain.
	Find(ctx context.Context, ks []key.Key, found func(n int)) (int, error)
	// Renewed sets is[i] where what the tier has of ks[i], whose time has come, was
	// stored since. One request a key.
	Renewed(ctx context.Context, ks []key.Key, is []bool) error
	// Purge deletes the chunks of a space that follow after, of all machines, or only
	// counts it: as much as one request can name. It tells gone of each.
	Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (Purged, error)
}

// Purged is what one step of a purge found.
type Purged struct {
	Known uint64 // chunks that were known here, in any tier
	Found uint64 // what the shared tier had besides
	Bytes uint64 // of that
	Next  string // where the next step begins; "" = this was the last one
}

// Summed is a tier that knows the checksums of its payloads by heart.
type Summed interface {
	// Sum is the checksum of k's payload and its bytes; false if k is not
	// known here. Memory only.
	Sum(k key.Key) (sum uint64, size uint32, known bool)
}

// Pending is a tier whose calls may go on after their callers gave them up,
// as with a device that hangs.
type Pending interface {
	// IsPending reports whether a Put or a deletion of k is under way, or a
	// scan of the tier, so that k may come to be there, also after a kill
	// of the process. A Delete of k settles it, or fails. Memory only.
	IsPending(k key.Key) bool
	// Left lists the chunks of a space that are there, or may come to be there in that
	// way, also those of which the caller was told otherwise. Memory only.
	Left(id key.SpaceID) []key.Key
}

// Health is a tier that can be switched off. All of it is memory only.
type Health interface {
	// Off reports whether a call would be refused now.
	Off() bool
	// Trouble says why the tier is off, or takes no writes; nil for one in order.
	Trouble() error
}

// Prober is a tier that is probed now and then while it is off.
type Prober interface {
	// ProbeNow lets the next call probe.
	ProbeNow()
}

// Scrubber is a tier that can look for payloads that have gone bad.
type Scrubber interface {
	// Scrub reads every payload at most at the rate (0 = no limit) and
	// deletes those that do not have their checksum, telling gone of each.
	// After an error the result is the work done so far.
	Scrub(ctx context.Context, bytesPerSecond int64, gone func(key.Key)) (Scrubbed, error)
}

// Scrubbed is what one pass over a tier found.
type Scrubbed struct {
	Chunks uint64 `json:"chunks"`     // read to the end
	Bytes  uint64 `json:"bytes"`      // of payload
	Wrong  uint64 `json:"wrong"`      // of those, deleted because they did not have their checksum
	Failed uint64 `json:"unreadable"` // could not be read; they stay
}
