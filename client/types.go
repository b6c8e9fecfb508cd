package client

import "github.com/kvstored/kvstored/internal/wire"

// Count is a number of chunks and of the tokens in them.
type Count = wire.Count

// TierCounts is a Count for DRAM, disk and remote, in this order.
type TierCounts = wire.TierCounts

// Match is the stored prefix of a prompt: Total is its length, Tiers says where
// its chunks are nearest. Worth is how many chunks, from the first on, are
// stored or would be admitted; a Reserve of those behind them would be refused.
type Match struct {
	Total Count
	Tiers TierCounts
	Worth int
	// Grouped is what a lookup or a job with groups has found; nil of others. Total
	// counts chunks of the first group then.
	Grouped *Grouped
	// Missing is why the chunk behind the match is not there; nil where that was not
	// asked for (LookupOptions.Why, PrefetchOptions.Why), nothing is missing, or the daemon is
	// too old to say.
	Missing *Missing
}

// Missing is why a chunk is not there: its code, the tier that had, has or declined it, and
// for how many seconds it has been gone, or NotKnown. docs/protocol-more.md has the codes.
type Missing = wire.Missing

// NotKnown is a number of seconds that the daemon does not know.
const NotKnown = wire.NotKnown

func matchOf(m *wire.Match, worth uint32) Match {
	return Match{Total: m.Total, Tiers: m.Tiers, Worth: int(worth)}
}

// Advice says where loading stops to be faster than computing: load the first
// Load chunks, compute the others, and the prompt is there after about Micros.
type Advice = wire.Advice

// Tiers is a set of tiers to search. The empty set means all.
type Tiers = wire.Tiers

// The tiers, nearest first.
const (
	CPU    = wire.TierCPU
	Disk   = wire.TierDisk
	Remote = wire.TierRemote
)

// WaitPolicy says when a job stops loading.
type WaitPolicy = wire.WaitPolicy

// The policies. The zero value leaves it to the daemon's configuration.
const (
	BestEffort   = wire.PolicyBestEffort   // the first Wait ends the job with what is ready
	WaitComplete = wire.PolicyWaitComplete // when all that was matched is ready, or a chunk fails
	Timeout      = wire.PolicyTimeout      // at the deadline
)

// Reason says why a job or a fill is as short as it is.
type Reason = wire.Code

// The reasons.
const (
	Running           = wire.CodeRunning
	Complete          = wire.CodeOK
	StoppedGap        = wire.CodeGap
	StoppedFailed     = wire.CodeFailed
	StoppedCorrupt    = wire.CodeCorrupt
	StoppedDeadline   = wire.CodeTimeout
	StoppedNoSpace    = wire.CodeNoSpace
	StoppedOverBudget = wire.CodeOverBudget
	StoppedCancelled  = wire.CodeCancelled
	StoppedRevoked    = wire.CodeRevoked
	StoppedClosed     = wire.CodeClosed
	StoppedOverQuota  = wire.CodeOverQuota
)

// Grant is the answer to one chunk of a reservation.
type Grant = wire.Code

// The grants.
const (
	Granted = wire.CodeOK      // fill it and commit
	Exists  = wire.CodeExists  // already stored: nothing to do
	Pending = wire.CodePending // another client is filling it: nothing to do
	// NotWanted is a window or a state that no prefix needs that is worth having.
	NotWanted = wire.CodeDeclined
)

// Stored is what became of one chunk that was committed or put.
type Stored = wire.Stored

// Result is the outcome in a Stored.
type Result = wire.Code

// The results.
const (
	ResultStored     = wire.CodeOK
	ResultExists     = wire.CodeExists
	ResultDiffers    = wire.CodeDiffers
	ResultNotGranted = wire.CodeNotReserved
	ResultNoSpace    = wire.CodeNoSpace
	ResultOverBudget = wire.CodeOverBudget
	ResultPending    = wire.CodePending
	ResultOverQuota  = wire.CodeOverQuota
	ResultDeclined   = wire.CodeDeclined // not worth the room
)

// PutMode says how payloads reach the arena on a connection.
type PutMode = wire.PutMode

// The modes.
const (
	PutInline = wire.PutInline
	PutStaged = wire.PutStaged
)

// Rights are what the daemon lets this process's user do.
type Rights = wire.Rights

// The rights.
const (
	RightRead  = wire.RightRead
	RightWrite = wire.RightWrite
	RightAdmin = wire.RightAdmin
)
