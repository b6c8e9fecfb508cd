// Package spin decides how long a connection polls its socket before it sleeps.
// Waking a sleeper takes 50 us and more on virtual machines, which is longer
// than most messages take. It owns no socket and no goroutine.
package spin
