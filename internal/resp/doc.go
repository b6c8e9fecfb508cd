// Package resp is the Redis front end: of RESP2 and RESP3 what LMCache's Redis clients,
// redis-cli, redis-py and go-redis send to store large values. docs/resp.md lists the
// commands and how their answers differ from those of Redis.
//
// It owns its listeners' connections, parses and answers, and keeps the values.
//
// # Values
//
// A [Store] keeps values under names of any length over a store.Store.
//
// A name is hashed to a key of the package's own space, and its value is a chain of
// one chunk, with a header in front of it that holds the name and the time the value
// expires. So a collision of hashes is a miss and not another name's bytes, and all
// of it survives a restart with the disk tier. The remote tier never has any of it:
// names belong to one daemon, and their values change.
//
// A Fill is a block that is written by the caller that began it, straight from the
// socket, and becomes visible as a whole with Store or not at all. A Value is
// a leased block; its bytes are good until Release.
//
// A change of a name deletes its old value first. Where a tier in trouble may
// still have that, the deletion is owed: the name reads as absent, and takes no
// value, until it is made. Debts are in memory only: after a kill the disk may bring
// an old value back. They are bounded; one too many is ErrUncertain, and then a front
// end must not tell its client that the old value is gone.
//
// Changes of one name take turns by one of a fixed set of locks, which are held
// over work of the tiers: a deletion below may wait for the disk. Readers take
// none of them. The locks of the debts and of the shelter are leaves.
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
