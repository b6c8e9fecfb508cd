//go:build !linux

package measure

import "time"

// Used: the processor time of other processes is not known here.
func Used(int) time.Duration { return 0 }
