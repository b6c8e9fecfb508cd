// Package poll says for how long a connection looks for its next message before it
// sleeps: for [Longest] while the machine is idle, else not at all. Waking a sleeper
// takes 50 us and more on virtual machines, which is longer than most messages take.
//
// The machine is idle while threads wait for its processors for less than a tenth of the
// time, by the kernel's pressure stall information. Where that cannot be read no
// connection polls. At most half of the processors poll, so that other goroutines find one.
//
// It owns what the process knows of the machine, in atomic fields. It reads no socket,
// starts no goroutine and keeps no buffer.
package poll
