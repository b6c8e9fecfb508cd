// Package cli is how the programs of kvstored talk on a terminal: tables, lists, the
// progress of long work, and where they look for a daemon.
//
// It owns nothing, and connects to nothing. A Progress belongs to one goroutine.
package cli
