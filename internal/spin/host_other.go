//go:build !linux

package spin

import "time"

// waited: how long a thread has waited cannot be read here.
func waited() (int, time.Duration, bool) { return 0, 0, false }

// pressure: the pressure cannot be read here.
func pressure() (machine, group time.Duration) { return 0, 0 }

// runnable: how many threads want to run cannot be read here.
func runnable() (int, bool) { return 0, false }
