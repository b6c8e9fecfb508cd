// Package keep has the memory of a daemon outlive its process: the descriptors of the
// arena and of its manifest are kept by another process, which does nothing else, and
// the next daemon gets them back.
//
// Two processes can keep them: systemd, in the descriptor store of the daemon's unit
// (FileDescriptorStoreMax=), and kvstored keep, a [Server], where there is no systemd.
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
package keep
