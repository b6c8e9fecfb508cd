// Package fdstore has the memory and the listening sockets of a daemon outlive its process:
// another process, which does nothing else, keeps their descriptors, and the next daemon
// gets them back. Connects wait meanwhile.
//
// Two processes can keep them: systemd, in the descriptor store of the daemon's unit
// (FileDescriptorStoreMax=), and serve --keeper, a [Server], where there is no systemd.
//
// # Owns
//
// The messages to either and their order, and the check of the peer of a Server: its
// user's, or root's. One daemon at a time has the descriptors of a Server: while the
// connection of the one that took or gave them lasts, no other is given them.
//
// # Never does
//
// It does not look into the files.
//
// # Locks and buffers
//
// A Server has one mutex, and answers one message at a time. A Keeper is used by one
// goroutine.
package fdstore
