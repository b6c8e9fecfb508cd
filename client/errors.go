package client

import (
	"errors"
	"fmt"

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
type Code = wire.Status

// What the daemon refuses, for errors.Is. The text of the *Error says what to
// do in the case at hand.
const (
	ErrBadRequest        = wire.StatusBadRequest
	ErrUnknownOp         = wire.StatusUnknownOp
	ErrVersion           = wire.StatusVersion
	ErrDenied            = wire.StatusDenied
	ErrTooLarge          = wire.StatusTooLarge
	ErrNoSpace           = wire.StatusNoSpace
	ErrOverBudget        = wire.StatusOverBudget
	ErrNotFound          = wire.StatusNotFound
	ErrUnknownSpace      = wire.StatusUnknownSpace
	ErrUnknownJob        = wire.StatusUnknownJob
	ErrUnknownFill       = wire.StatusUnknownFill
	ErrRevoked           = wire.StatusRevoked // the lease did not hold: forget what was read
	ErrNotReserved       = wire.StatusNotReserved
	ErrInconsistentChain = wire.StatusInconsistentChain
	ErrStopping          = wire.StatusClosed
	ErrTierOff           = wire.StatusTierOff
	ErrTimeout           = wire.StatusTimeout
	ErrInternal          = wire.StatusInternal
	ErrUnknownOption     = wire.StatusUnknownOption
	ErrUnsupported       = wire.StatusUnsupported
	ErrOverQuota         = wire.StatusOverQuota
)

// Error is a request that was refused, by the daemon or by this package before
// it was sent.
type Error struct {
	Op   string
	Code Code
	Text string // what is wrong and what to do about it
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
