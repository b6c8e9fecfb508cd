// Package blob keeps values under names of any length over a stack.Stack: what the
// Redis front end needs, whose clients know neither chains nor leases.
//
// A name is hashed to a key of the package's own space, and its value is a chain of
// one chunk, with a header in front of it that holds the name and the time the value
// expires. So a collision of hashes is a miss and not another name's bytes, and all
// of it survives a restart with the disk tier. The remote tier never has any of it:
// names belong to one daemon, and their values change.
//
// # Buffers
//
// A Fill is a block that is written by the caller that began it, straight from the
// socket, and becomes visible as a whole with Store or not at all. A Value is
// a leased block; its bytes are good until Release.
//
// # Owed deletions
//
// A change of a name deletes its old value first. Where a tier in trouble may
// still have that, the deletion is owed: the name reads as absent, and takes no
// value, until it is made. Debts are in memory only: after a kill the disk may bring
// an old value back. They are bounded; one too many is ErrUncertain, and then a front
// end must not tell its client that the old value is gone.
//
// # Locks
//
// Changes of one name take turns by one of a fixed set of locks, which are held
// over work of the tiers: a deletion below may wait for the disk. Readers take
// none of them. The locks of the debts and of the shelter are leaves.
package blob
