//go:build !linux

package spin

import "time"

// readable: there is no such call here.
func readable(uintptr, time.Duration) bool { return false }
