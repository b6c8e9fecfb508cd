// Package spin decides how long a connection polls its socket before it sleeps.
// Waking a sleeper takes 50 us and more on virtual machines, which is longer
// than most messages take.
//
// A [Wait] is one connection's; its window follows the waits there were. All Waits
// of the process share one view of the machine, and polling must never be at
// another's cost. It ends at once, and stays off for seconds, when polls lose the
// processor for more than a tenth of the time, when more connections are active than
// processors are left for, or when threads wait for processors (pressure stall
// information). Where both ends of a connection poll on one of two processors,
// one of them moves to the other ([Wait.Parts]).
//
// [Read] has counts of the polls by their outcome.
//
// It owns these windows and counts. It never reads a socket, starts a goroutine or
// keeps a buffer. The counts are atomic; the one mutex guards a small table of
// threads and is held for no I/O.
package spin
