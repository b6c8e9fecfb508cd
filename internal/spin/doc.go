// Package spin decides how long a connection polls its socket before it sleeps.
// Waking a sleeper takes 50 us and more on virtual machines, which is longer
// than most messages take. It owns the window of each [Wait] and the count of
// the connections that poll. It never reads a socket, starts a goroutine or keeps
// a buffer, and has no lock: the counts of the process are atomic.
package spin
