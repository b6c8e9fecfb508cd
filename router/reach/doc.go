// Package reach says to which endpoints a program may connect: addresses, networks,
// names of hosts and paths of sockets that a list allows. It resolves no name and
// makes no connection; it has no lock and no buffer.
package reach
