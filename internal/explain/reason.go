package explain

import "time"

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
	QueueFull   Decline = iota // DRAM needed the room before the writer had any
	WhileOff                   // the tier was switched off
	NoRoom                     // the tier had no room, and could make none
	BadPayload                 // the payload no longer had its checksum
	WriteBudget                // that of a day was spent
	WriteFailed                // the tier failed
	Stopped                    // the daemon stopped before
	NotWorth                   // the tier's policy has better use for the room
	Gone                       // the nearer tiers had lost it before its turn
	Lost                       // the tier had stored it, and could not keep it
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
