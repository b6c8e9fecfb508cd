// Package socket is what every server of the daemon needs of its sockets: their files, the
// connections that they take, the identity of the peer, and how to wait for the next message.
//
// # Files
//
// The file of a Unix socket is never made in place of one on which another daemon answers, has
// its mode and group before a client can connect, and is made and removed by turns where
// several daemons start or stop at once. Control messages of descriptors are made here too,
// and files of these.
//
// # Connections
//
// [Serve] takes the connections of a listener, and notices clients that leave.
//
// # Polls
//
// [Poll] says for how long a connection looks for its next message before it
// sleeps: for [LongestPoll] while the machine is idle, else not at all. Waking a sleeper
// takes 50 us and more on virtual machines, which is longer than most messages take.
//
// The machine is idle while threads wait for its processors for less than a quarter of the
// time, by the kernel's pressure stall information. Where that cannot be read no connection
// polls. At most a quarter of the processors poll: a client and its daemon each, so that half
// are left. With three or fewer none does: the runtime's own poller is woken by each message,
// and on two processors it takes its time from the two that poll. A get of 64 KiB took 91 to
// 146 us there with polls, and 52 without.
//
// # Owns
//
// The file at a socket's path, and beside it path~ and path.lock for as long as a turn takes;
// the goroutines of Serve; what the process knows of how idle the machine is. It never reads or
// writes a connection, and removes no file that is not a socket.
//
// # Locks and buffers
//
// One mutex around the set of live connections and one around those watched for departure:
// leaves, and none is held while a connection is served. The lock between processes is flock
// on path.lock. It keeps no buffer.
package socket
