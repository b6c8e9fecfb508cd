// Package resp is the Redis front end: of RESP2 and RESP3 what LMCache's Redis clients,
// redis-cli, redis-py and go-redis send to store large values. docs/resp.md lists the
// commands and how their answers differ from those of Redis.
//
// It owns its listeners' connections, parses and answers. What a value is and
// where it lies is internal/resp/blob's business.
//
// # Why a parser of its own
//
// A value of some MiB is the ordinary case here. The parsers there are hand
// over a command once it is complete, in memory of their own: one more copy of
// every byte. This one reads the header of each argument, so that a value's
// room in the arena is there before the value is, and the socket is read
// straight into it. Replies go out of the arena with writev.
//
// # Clients that know no errors
//
// Some read so many bytes and never look: GET, SET, EXISTS and DEL answer no error
// to a connection that has not shown, with HELLO or CLIENT, that it can take one
// (session.mute). A value that cannot be kept is dropped then, once it is certain
// that its name has none; a failure that only an error could answer ends the
// connection.
//
// # Goroutines and locks
//
// One goroutine a connection reads, executes and writes. Only when a client
// does not read its replies while it sends (a long pipeline) a second one
// takes over the writing, with a bounded queue; output has the lock for that.
// Nothing is held while the socket is waited for but what the client has asked
// for: the room of values it is sending, which between MULTI and EXEC are those
// of many commands, and leases of values it is reading. Both are charged to the
// connection, have a share of DRAM as their limit, and end when the client makes
// no progress for some time.
package resp
