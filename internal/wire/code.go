package wire

import "errors"

// ErrMalformed is wrapped by every error about bytes that do not follow the
// protocol. A server answers it with CodeBadRequest.
var ErrMalformed = errors.New("malformed")

// Code says how a request, a job, a slot or a chunk that was stored has ended: one
// numbering for all. Numbers and names are only ever added. A Code other than
// CodeOK is an error value, so that errors.Is can compare it.
type Code uint16

// The codes, and what to do about each.
const (
	CodeOK                Code = 0  // all is well: stored, granted, complete
	CodeBadRequest        Code = 1  // fix the client: the text says what is wrong
	CodeUnknownOp         Code = 2  // the daemon is older: do without
	CodeVersion           Code = 3  // no common version: update the older side
	CodeDenied            Code = 4  // the peer's uid lacks the right: see allow_uids, access
	CodeTooLarge          Code = 5  // larger than the limit that comes along, always
	CodeNoSpace           Code = 6  // no room: others hold it
	CodeOverBudget        Code = 7  // this client's own share is used up: release, commit or unpin first
	CodeNotFound          Code = 8  // nothing there under that name
	CodeUnknownSpace      Code = 9  // no such handle on this connection: open_space first
	CodeUnknownJob        Code = 10 // released, or never made
	CodeUnknownFill       Code = 11 // over, or never made
	CodeRevoked           Code = 12 // the lease or fill was too old: forget what was read under it
	CodeNotReserved       Code = 13 // that slot was not granted, or is over
	CodeInconsistentChain Code = 14 // a hash is known under another parent: the chain hashes are wrong
	CodeClosed            Code = 15 // the daemon is stopping: recompute, connect again later
	CodeTierOff           Code = 16 // the tier asked for is switched off or failing
	CodeTimeout           Code = 17 // not finished within the time given
	CodeInternal          Code = 18 // a fault of the daemon: its log says more
	CodeUnknownOption     Code = 19 // the daemon is older: leave the option out
	CodeUnsupported       Code = 20 // not on this connection, or not yet: the text says what is
	CodeOverQuota         Code = 21 // all that the space may occupy is in use: release or unpin, or raise its quota
	CodeStarting          Code = 22 // the daemon is not ready yet
	CodeCancelled         Code = 23 // by cancel, or released while it loaded
	CodeUnknownChain      Code = 24 // a chain that is not kept: send it
	CodeRunning           Code = 25 // the job still loads
	CodePending           Code = 26 // another client is filling the chunk
	CodeExists            Code = 27 // the chunk is there already
	CodeDiffers           Code = 28 // the chunk is there with other bytes, which stay
	CodeCorrupt           Code = 29 // the bytes were wrong, and the chunk was dropped
	CodeFailed            Code = 30 // a tier failed
	CodeGap               Code = 31 // a chunk that was matched is no longer there
	CodeNeverStored       Code = 32 // this and those up to CodeGroup say only why a chunk is missing
	CodeEvicted           Code = 33
	CodeDeclined          Code = 34 // not worth the room: the daemon has better use for it
	CodeOtherSpace        Code = 35
	CodeGroup             Code = 36 // another group of a hybrid model lacks it
)

func (c Code) String() string { return name(codeNames[:], uint16(c), "code") }

// Error returns the stable name.
func (c Code) Error() string { return c.String() }

// Present reports whether a chunk that was committed or put is there now, from
// this fill or another.
func (c Code) Present() bool { return c == CodeOK || c == CodeExists || c == CodeDiffers }

// Retry is when a request that was refused with c may be sent again.
func (c Code) Retry() Retry {
	switch c {
	case CodeOverBudget, CodeOverQuota:
		return RetryRelease
	case CodeNoSpace, CodeTierOff, CodeTimeout, CodeRunning, CodePending, CodeFailed:
		return RetryLater
	case CodeClosed, CodeStarting:
		return RetryReconnect
	}
	return RetryNever
}

var codeNames = [...]string{
	"ok", "bad_request", "unknown_op", "version", "denied", "too_large", "no_space", "over_budget",
	"not_found", "unknown_space", "unknown_job", "unknown_fill", "revoked", "not_reserved",
	"inconsistent_chain", "closed", "tier_off", "timeout", "internal", "unknown_option", "unsupported",
	"over_quota", "starting", "cancelled", "unknown_chain", "running", "pending", "exists", "differs",
	"corrupt", "failed", "gap", "never_stored", "evicted", "declined", "other_space", "group",
}

// Retry says when a refused request may be sent again.
type Retry uint8

// The classes.
const (
	RetryNever     Retry = 0 // not as it is
	RetryRelease   Retry = 1 // when something of this client is released
	RetryLater     Retry = 2 // after some time
	RetryReconnect Retry = 3 // on a new connection, after some time
)

func (r Retry) String() string { return name(retryNames[:], uint16(r), "retry") }

var retryNames = [...]string{"never", "release", "later", "reconnect"}
