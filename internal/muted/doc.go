// Package muted takes Unix sockets away from the poller of the Go runtime, and
// tells that poller of a socket only while a goroutine sleeps on it.
//
// The runtime watches each socket with one epoll instance, on which an idle thread
// waits. So each message wakes that thread, also where a goroutine polls the
// socket itself (package spin): it finds no goroutine to wake and sleeps again. On two
// processors that costs more than the message, and the thread competes with the
// other end for its processor.
//
// A muted connection has an epoll instance of its own, which holds its socket,
// disarmed. The runtime watches that instance. To sleep, a goroutine arms the
// socket for one event and waits for the instance, with deadlines and Close as
// the runtime has them. [New] makes one; elsewhere than on Linux, and where
// descriptors run out, the connection is returned unchanged.
//
// It owns the sockets that it took over and their instances. It starts no
// goroutine and buffers nothing. The mutex of a gate is held while its goroutine
// sleeps, as the runtime's own lock of a descriptor's readers is; that of a
// connection guards fields only.
package muted
