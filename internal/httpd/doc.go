// Package httpd serves HTTP on the daemon's own listeners, within bounds: so many
// connections, so many bytes of header, so much time for each request, and an end
// that waits for the handlers. It also keeps pages of other origins away from a
// listener that browsers reach.
//
// # Owns
//
// The connections of each listener that Serve is given.
//
// # Never does
//
// It knows no path and no right: those are its handlers'.
//
// # Locks
//
// One around the set of connections of a listener; a leaf, not held over I/O.
//
// # Buffers
//
// Those of net/http.
package httpd
