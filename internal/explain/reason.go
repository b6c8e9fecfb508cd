package explain

import (
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/key"
)

// Reason is why a request ended before the prompt that it was about.
type Reason uint8

// The reasons: first those of the chunk that is missing, then those of a request that
// did not get chunks that are there.
const (
	Nothing     Reason = iota // nothing is missing
	NeverStored               // nobody has stored it here, or that was too long ago to be known
	Evicted                   // by the policy of a tier
	Declined                  // a tier did not take it; see Decline
	Deleted                   // by a client or an administrator
	OtherSpace                // only under another model, rank, revision, ...
	TierOff                   // a tier that has it is switched off
	Corrupt                   // its bytes were wrong, and it was dropped
	Gap                       // it was there, and the tier no longer has it
	Pending                   // a client is writing it
	Scanning                  // what is on disk is not all known yet
	NotSearched               // only in a tier that the request did not ask for
	Distrusted                // a client distrusts the space

	Group      // another group of a hybrid model lacks something
	Timeout    // it came too late
	Cancelled  // the client did not wait
	Revoked    // the lease was taken back
	OverBudget // the client holds as much as it may
	NoSpace    // there was no room in DRAM to load it to
	Failed     // a tier failed
	Advised    // the daemon advised to compute it
	reasons    // how many there are
)

var reasonNames = [reasons]string{
	"nothing", "never_stored", "evicted", "declined", "deleted", "other_space", "tier_off", "corrupt", "gap",
	"pending", "scanning", "not_searched", "distrusted", "group", "timeout", "cancelled", "revoked", "over_budget", "no_space", "failed", "advised",
}

// String is the stable name.
func (r Reason) String() string { return reasonNames[r] }

// Decline is why a tier did not take a chunk.
type Decline uint8

// The declines: first those of writers to tiers below DRAM, then those of DRAM.
const (
	QueueFull   Decline = iota // DRAM needed the room before the queue had any
	WhileOff                   // the tier was switched off after failures, or had no room yet
	NoRoom                     // the tier had no room, and could make none
	BadPayload                 // the payload no longer had its checksum
	WriteBudget                // that of a day was spent
	WriteFailed                // the tier failed
	Stopped                    // the daemon stopped before
	NotWorth                   // the tier's policy has better use for the room
	Gone                       // it had left the nearer tiers too, evicted or deleted, before its turn
	Lost                       // the tier had stored it and has lost it, and no other has it
	Admission                  // no tier's policy wanted it: it was not reserved
	Quota                      // the space has all that it may
	Budget                     // the client, or all of them, held as much as they may
	Crowded                    // DRAM had no room that could be freed
	declines                   // how many there are
)

var declineNames = [declines]string{
	"queue_full", "tier_off", "no_space", "corrupt", "write_budget", "failed", "stopped", "not_worth", "gone", "lost",
	"admission", "quota", "over_budget", "crowded",
}

// String is the stable name.
func (d Decline) String() string { return declineNames[d] }

// MarshalText makes a decline a key of a JSON object.
func (d Decline) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads it back.
func (d *Decline) UnmarshalText(text []byte) error {
	i := slices.Index(declineNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%q is no reason to drop a chunk", text)
	}
	*d = Decline(i)
	return nil
}

// noTier is the tier of an absence that is none's.
const noTier = 4

// tierNames are those of package tier, which imports nothing of this one.
var tierNames = [noTier + 1]string{"cpu", "disk", "remote", "tier3", "none"}

// Absence is the first chunk of a prompt that a request did not get.
type Absence struct {
	Reason Reason
	Tier   uint8   // that had it, has it or declined it; noTier
	Why    Decline // of a declined one
	Policy string  // of an evicted one: the policy that chose it
	At     uint32  // when it left, in seconds since 1970; 0 = not known
	Since  uint64  // bytes that the tier has evicted since then; of an evicted one
	Key    key.Key // of the chunk; zero where none was looked at
}

// None is the absence of nothing.
var None = Absence{Tier: noTier}

// Because is an absence of which only the reason is known.
func Because(r Reason) Absence { return Absence{Reason: r, Tier: noTier} }

// TierName is the name of its tier, or none.
func (a *Absence) TierName() string { return tierNames[min(a.Tier, noTier)] }

// Name is its reason as it is counted: that of a declined chunk says why.
func (a *Absence) Name() string {
	if a.Reason == Declined {
		return "declined_" + a.Why.String()
	}
	return a.Reason.String()
}

// Time is when the chunk left; zero if that is not known.
func (a *Absence) Time() time.Time {
	if a.At == 0 {
		return time.Time{}
	}
	return time.Unix(int64(a.At), 0)
}

// A distance is counted in steps of a quarter of a power of two, from least on, so that
// a sum of distances is at most a quarter too much.
const (
	least     = 16 // a power of two: 64 KiB
	perDouble = 4
	steps     = 31 * perDouble // up to 128 TiB
)

// kinds are the reasons, and then the declines in the place of Declined.
const kinds = int(reasons) + int(declines)

// Counts are tokens that requests did not get. They are safe for concurrent use.
type Counts struct {
	tokens [noTier + 1][kinds]atomic.Uint64
	near   [noTier][steps]atomic.Uint64 // evicted tokens, by what the tier has evicted since
}

// Add counts tokens.
func (c *Counts) Add(a *Absence, tokens uint64) {
	if tokens == 0 || a.Reason == Nothing {
		return
	}
	kind := int(a.Reason)
	if a.Reason == Declined {
		kind = int(reasons) + int(a.Why)
	}
	tier := min(a.Tier, noTier)
	c.tokens[tier][kind].Add(tokens)
	if a.Reason == Evicted && tier < noTier {
		c.near[tier][stepOf(a.Since)].Add(tokens)
	}
}

// stepOf is the step whose upper bound is n or the next above it.
func stepOf(n uint64) int {
	if n < 1<<least {
		return 0
	}
	power := bits.Len64(n) - 1
	quarter := int(n>>(power-2)) & (perDouble - 1)
	return min((power-least)*perDouble+quarter+1, steps-1)
}

// boundOf is the upper bound of a step, in bytes.
func boundOf(step int) uint64 {
	power := least + step/perDouble
	return 1<<power + uint64(step%perDouble)<<(power-2)
}

// Total is the tokens that were missing for one reason.
type Total struct {
	Tier   string `json:"tier"`
	Reason string `json:"reason"`
	Tokens uint64 `json:"tokens"`
}

// Growth is how many of the evicted tokens a tier with so many bytes more would still
// have had, as far as the order of eviction is that of last use.
type Growth struct {
	Tier   string `json:"tier"`
	Bytes  uint64 `json:"bytes"`
	Tokens uint64 `json:"tokens"`
}

// Totals is a snapshot: missed tokens by tier and reason, and the tokens that more room
// would have kept, by tier and then by bytes.
type Totals struct {
	Missed []Total  `json:"missed"`
	Growth []Growth `json:"growth"`
}

// Read is a snapshot.
func (c *Counts) Read() Totals {
	t := Totals{Missed: []Total{}, Growth: []Growth{}}
	for tier := range c.tokens {
		for kind := range c.tokens[tier] {
			if n := c.tokens[tier][kind].Load(); n > 0 {
				a := Absence{Reason: Reason(kind)}
				if kind >= int(reasons) {
					a = Absence{Reason: Declined, Why: Decline(kind - int(reasons))}
				}
				t.Missed = append(t.Missed, Total{tierNames[tier], a.Name(), n})
			}
		}
	}
	for tier := range c.near {
		sum := uint64(0)
		for step := range c.near[tier] {
			if n := c.near[tier][step].Load(); n > 0 {
				sum += n
				t.Growth = append(t.Growth, Growth{tierNames[tier], boundOf(step), sum})
			}
		}
	}
	return t
}

// tokens is all that was missing.
func (t *Totals) tokens() (n uint64) {
	for i := range t.Missed {
		n += t.Missed[i].Tokens
	}
	return n
}
