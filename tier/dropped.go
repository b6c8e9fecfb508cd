package tier

import (
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// DroppedError is returned by a Sync that has dropped chunks which calls of Put
// had stored: an earlier Sync of them failed, so that no later one proves that
// they survive a power failure. The caller may put them again.
type DroppedError struct {
	Keys []key.Key // the caller's, in no order
	// Err is why the rest may not survive either; nil where all the rest does.
	Err error
}

func (e *DroppedError) Error() string {
	s := fmt.Sprintf("%d chunks were dropped that could not be synced", len(e.Keys))
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *DroppedError) Unwrap() error { return e.Err }
