// Package cli is how the programs of kvstored talk on a terminal: tables, lists and the
// progress of long work.
//
// It owns nothing, never reads anything, and knows no daemon. A Progress belongs to one
// goroutine.
package cli
