package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
)

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

// The ways in which the connection itself fails.
var (
	// ErrDisconnected says that the connection is gone, and with it every
	// job, lease and fill. Dial again.
	ErrDisconnected = errors.New("disconnected from the daemon")
	// ErrProtocol says that the daemon sent something that makes no sense.
	// The connection is closed; the error wraps ErrDisconnected too.
	ErrProtocol = errors.New("the daemon broke the protocol")
	// ErrClosed says that Close was called on this Client.
	ErrClosed = errors.New("client is closed")
)

// The ways in which one chunk fails on this side.
var (
	// ErrNotReady says that a job does not have that chunk, or not yet.
	ErrNotReady = errors.New("chunk is not ready")
	// ErrCorrupt says that bytes received do not match their checksum.
	ErrCorrupt = errors.New("payload does not match its checksum")
)

// Code is the stable code of an error reply. It is itself an error, so that
// errors.Is finds it in an *Error.
type Code = wire.Code

// What the daemon refuses, for errors.Is. The text of the *Error says what to
// do in the case at hand.
const (
	ErrBadRequest        = wire.CodeBadRequest
	ErrUnknownOp         = wire.CodeUnknownOp
	ErrVersion           = wire.CodeVersion
	ErrDenied            = wire.CodeDenied
	ErrTooLarge          = wire.CodeTooLarge
	ErrNoSpace           = wire.CodeNoSpace
	ErrOverBudget        = wire.CodeOverBudget
	ErrNotFound          = wire.CodeNotFound
	ErrUnknownSpace      = wire.CodeUnknownSpace
	ErrUnknownJob        = wire.CodeUnknownJob
	ErrUnknownFill       = wire.CodeUnknownFill
	ErrRevoked           = wire.CodeRevoked // the lease did not hold: forget what was read
	ErrNotReserved       = wire.CodeNotReserved
	ErrInconsistentChain = wire.CodeInconsistentChain
	ErrStopping          = wire.CodeClosed
	ErrTierOff           = wire.CodeTierOff
	ErrTimeout           = wire.CodeTimeout
	ErrInternal          = wire.CodeInternal
	ErrUnknownOption     = wire.CodeUnknownOption
	ErrUnsupported       = wire.CodeUnsupported
	ErrOverQuota         = wire.CodeOverQuota
	ErrStarting          = wire.CodeStarting
	ErrCancelled         = wire.CodeCancelled
	ErrDeclined          = wire.CodeDeclined
)

// Error is a request that was refused, by the daemon or by this package before
// it was sent.
type Error struct {
	Op   string
	Code Code
	Text string // what is wrong and what to do about it

	// Of what the daemon refused:
	Retry Retry         // when the same may be asked again
	After time.Duration // with RetryLater and RetryReconnect: not before
	Limit uint64        // with ErrTooLarge: the largest value that would have passed, 0 if it is not told
}

// Retry says when the refused request may be sent again.
type Retry = wire.Retry

// The classes.
const (
	RetryNever     = wire.RetryNever     // not as it is
	RetryRelease   = wire.RetryRelease   // when something of this client is released
	RetryLater     = wire.RetryLater     // after some time
	RetryReconnect = wire.RetryReconnect // on a new connection, after some time
)

// refusalOf is what a daemon refused.
func refusalOf(op string, code Code, m *wire.ErrorReply) *Error {
	return &Error{
		Op: op, Code: code, Text: m.Text, Retry: m.Retry, After: time.Duration(m.AfterMillis) * time.Millisecond, Limit: m.Limit,
	}
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("kvstored: %s: %s: %s", e.Op, e.Code, e.Text)
}

// Unwrap returns the Code.
func (e *Error) Unwrap() error { return e.Code }

func refuse(op string, code Code, format string, args ...any) error {
	return &Error{Op: op, Code: code, Text: fmt.Sprintf(format, args...)}
}

// broken is an error about what the daemon sent.
func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %w: %w", ErrDisconnected, ErrProtocol, fmt.Errorf(format, args...))
}
