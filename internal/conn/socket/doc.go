// Package socket makes and removes the files of Unix sockets on which a daemon
// listens: never in place of one on which another daemon answers, with mode and
// group before a client can connect, and by turns where several daemons start or
// stop at once. It also tells the user at the other end of a connection, and makes control
// messages of descriptors, and files of these.
//
// It owns the file at a socket's path, and beside it path~ and path.lock for as
// long as a turn takes. It never accepts or reads a connection, and removes no
// file that is not a socket. It has no mutex: the lock between processes is
// flock on path.lock.
package socket
