// Package poll says for how long a connection looks for its next message before it
// sleeps: for [Longest] while the machine is idle, else not at all. Waking a sleeper
// takes 50 us and more on virtual machines, which is longer than most messages take.
//
// The machine is idle while threads wait for its processors for less than a quarter of the
// time, by the kernel's pressure stall information. Where that cannot be read no connection
// polls. At most a quarter of the processors poll: a client and its daemon each, so that half
// are left. With three or fewer none does: the runtime's own poller is woken by each message,
// and on two processors it takes its time from the two that poll. A get of 64 KiB took 91 to
// 146 us there with polls, and 52 without.
//
// It owns what the process knows of the machine, in atomic fields. It reads no socket,
// starts no goroutine and keeps no buffer.
package poll
