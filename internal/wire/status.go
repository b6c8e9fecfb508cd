package wire

import "errors"

// ErrMalformed is wrapped by every error about bytes that do not follow the
// protocol. A server answers it with StatusBadRequest.
var ErrMalformed = errors.New("malformed")

// Status is the outcome of a request: ok or an error code. Numbers and names
// are only ever added. A Status other than StatusOK is an error value, so that
// errors.Is can compare it.
type Status uint16

// The codes, and what to do about each.
const (
	StatusOK                Status = 0
	StatusBadRequest        Status = 1  // fix the client: the text says what is wrong
	StatusUnknownOp         Status = 2  // the daemon is older: do without
	StatusVersion           Status = 3  // no common version: update the older side
	StatusDenied            Status = 4  // the peer's uid lacks the right: see allow_uids, admin_uids
	StatusTooLarge          Status = 5  // send less: the text names the limit
	StatusNoSpace           Status = 6  // everything is protected by others: store less or later
	StatusOverBudget        Status = 7  // this client's own share is used up: release, commit or unpin first
	StatusNotFound          Status = 8  // nothing there under that name
	StatusUnknownSpace      Status = 9  // no such handle on this connection: open_space first
	StatusUnknownJob        Status = 10 // released, cancelled or never created
	StatusUnknownFill       Status = 11 // finished, aborted or never created
	StatusRevoked           Status = 12 // the lease expired: forget what was read under it
	StatusNotReserved       Status = 13 // that range of the fill was not granted or is already committed
	StatusInconsistentChain Status = 14 // a hash is known under another parent: the chain hashes are wrong
	StatusClosed            Status = 15 // the daemon is stopping: recompute, connect again later
	StatusTierOff           Status = 16 // the tier asked for is switched off or failing
	StatusTimeout           Status = 17 // not finished within the time the request gave
	StatusInternal          Status = 18 // a fault of the daemon: its log says more
	StatusUnknownOption     Status = 19 // the daemon is older: leave the option out
	StatusUnsupported       Status = 20 // not on this connection: the text says which mode does
	StatusOverQuota         Status = 21 // all that the space may occupy is in use: release or unpin, or raise its quota
)

func (s Status) String() string { return name(statusNames[:], uint16(s), "status") }

// Error returns the stable name.
func (s Status) Error() string { return s.String() }

var statusNames = [...]string{
	"ok", "bad_request", "unknown_op", "version", "denied", "too_large", "no_space", "over_budget",
	"not_found", "unknown_space", "unknown_job", "unknown_fill", "revoked", "not_reserved",
	"inconsistent_chain", "closed", "tier_off", "timeout", "internal", "unknown_option", "unsupported",
	"over_quota",
}

// Reason says why a job or a reservation is as short as it is.
type Reason uint8

// The reasons. All but the first are final.
const (
	ReasonRunning    Reason = 0 // a job that still loads
	ReasonComplete   Reason = 1 // everything matched is ready; everything asked for was answered
	ReasonGap        Reason = 2 // a chunk that was matched is no longer there
	ReasonFailed     Reason = 3 // a tier failed; the state names it
	ReasonCorrupt    Reason = 4 // a chunk's bytes were wrong and it was dropped
	ReasonDeadline   Reason = 5 // the deadline passed
	ReasonNoSpace    Reason = 6 // no room: others hold it
	ReasonOverBudget Reason = 7 // no room: this client's own share is used up
	ReasonCancelled  Reason = 8 // cancelled or released
	ReasonRevoked    Reason = 9 // the lease expired
	ReasonClosed     Reason = 10
	ReasonOverQuota  Reason = 11 // no room: all that the space may occupy is in use
)

func (r Reason) String() string { return name(reasonNames[:], uint16(r), "reason") }

var reasonNames = [...]string{
	"running", "complete", "gap", "failed", "corrupt", "deadline", "no_space", "over_budget",
	"cancelled", "revoked", "closed", "over_quota",
}

// Grant is the answer to one chunk of a reservation.
type Grant uint8

// The grants.
const (
	GrantGranted Grant = 0 // room at the offset: fill and commit it
	GrantExists  Grant = 1 // already stored: nothing to send
	GrantPending Grant = 2 // another client is filling it: nothing to send
)

func (g Grant) String() string { return name(grantNames[:], uint16(g), "grant") }

var grantNames = [...]string{"granted", "exists", "pending"}

// Result is what became of one chunk that was committed or put.
type Result uint8

// The results.
const (
	ResultStored     Result = 0 // visible from now on
	ResultExists     Result = 1 // it was there already; the same bytes where Sum is not 0
	ResultDiffers    Result = 2 // other bytes were there already; these are dropped and counted
	ResultNotGranted Result = 3 // the reservation did not grant this chunk
	ResultNoSpace    Result = 4 // no room: others hold it
	ResultOverBudget Result = 5 // no room: this client's own share is used up
	ResultPending    Result = 6 // another client is filling it; these bytes are dropped
	ResultOverQuota  Result = 7 // no room: all that the space may occupy is in use
)

func (r Result) String() string { return name(resultNames[:], uint16(r), "result") }

// Present reports whether the chunk is there now, from this fill or another.
func (r Result) Present() bool { return r <= ResultDiffers }

var resultNames = [...]string{
	"stored", "exists", "differs", "not_granted", "no_space", "over_budget", "pending",
	"over_quota",
}

// Outcome is the answer to release: whether the lease held to the end.
type Outcome uint8

// The outcomes.
const (
	OutcomeOK      Outcome = 0 // what was read under the lease is good
	OutcomeRevoked Outcome = 1 // the lease had expired: forget what was read
)

func (o Outcome) String() string { return name(outcomeNames[:], uint16(o), "outcome") }

var outcomeNames = [...]string{"ok", "revoked"}
