// Package httpd serves HTTP on the daemon's own listeners, within bounds: so many
// connections, so many bytes of header, so much time for each request, and an end
// that waits for the handlers. It also keeps pages of other origins away from a
// listener that browsers reach.
//
// # Owns
//
// The connections of each listener that Serve is given.
//
// A [Metric] is one row of a program's table for Prometheus: its name, what it is, and where it
// is read. [Collect] reads all rows of a table from one snapshot. A table is a variable of a
// package, and is not changed.
//
// # Never does
//
// It knows no path and no right: those are its handlers'. It counts nothing: the part of the
// program that knows a number has it.
//
// # Locks
//
// One around the set of connections of a listener; a leaf, not held over I/O.
//
// # Buffers
//
// Those of net/http.
package httpd
