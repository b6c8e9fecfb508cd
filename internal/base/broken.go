package base

import (
	"flag"
	"fmt"
	"sync/atomic"

	"github.com/rs/zerolog"
)

var (
	brokenCount atomic.Uint64
	log         atomic.Pointer[zerolog.Logger]
	survive     atomic.Bool // see Survive
)

// Broken counts a broken invariant.
func Broken(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	if (tagged || flag.Lookup("test.v") != nil) && !survive.Load() { // package testing would be linked into the daemon
		panic(what)
	}
	n := brokenCount.Add(1)
	if l := log.Load(); l != nil && n&(n-1) == 0 {
		go l.Error().Uint64("count", n).Str("invariant", what).
			Msg("an invariant of the daemon is broken; what it concerns is put aside until the process ends: please report it")
	}
}

// BrokenCount is how many there were.
func BrokenCount() uint64 { return brokenCount.Load() }

// BrokenErr is nil if there were none.
func BrokenErr() error {
	n := brokenCount.Load()
	if n == 0 {
		return nil
	}
	return fmt.Errorf("invariants of the daemon were broken %d times, and chunks put aside", n)
}

// LogBroken has them logged.
func LogBroken(l zerolog.Logger) { log.Store(&l) }

// SurviveBroken has a test see what the daemon does in production, until it calls end, which
// forgets what was counted: other tests have daemons in the same process.
func SurviveBroken() (end func()) {
	n := brokenCount.Load()
	survive.Store(true)
	return func() {
		survive.Store(false)
		brokenCount.Store(n)
	}
}
