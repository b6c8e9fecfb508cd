package daemon

import "os"

// Environ is the test's environment for another process, without the settings of a
// daemon.
func Environ() []string { return withoutOurs(os.Environ()) }
