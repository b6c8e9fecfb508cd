package broken

import (
	"flag"
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"
)

var (
	count   atomic.Uint64
	log     atomic.Pointer[zerolog.Logger]
	survive atomic.Bool // see Survive
)

// Report counts a broken invariant.
func Report(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if (tagged || flag.Lookup("test.v") != nil) && !survive.Load() { // package testing would be linked into the daemon
		panic(what)
	}
	n := count.Add(1)
	if l := log.Load(); l != nil && n&(n-1) == 0 {
		go l.Error().Uint64("count", n).Str("invariant", what).
			Msg("an invariant of the daemon is broken; what it concerns is put aside until the process ends: please report it")
	}
}

// Count is how many there were.
func Count() uint64 { return count.Load() }

// Err is nil if there were none.
func Err() error {
	n := count.Load()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("invariants of the daemon were broken %d times, and chunks put aside", n)
}

// LogTo has them logged.
func LogTo(l zerolog.Logger) { log.Store(&l) }

// Survive has a test see what the daemon does in production, until it calls end, which
// forgets what was counted: other tests have daemons in the same process.
func Survive() (end func()) {
	n := count.Load()
	survive.Store(true)
	return func() {
		survive.Store(false)
		count.Store(n)
	}
}
