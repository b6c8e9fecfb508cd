package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
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
