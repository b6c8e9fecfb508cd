// Package databasetest opens databases without a process, for tests that ask about something
// else.
//
// Goroutines of the test serve the pairs, which are pipes, so all works in a bubble of
// testing/synctest. The goroutines end with the pairs. A page that cannot be read ends the
// program, and so may what Badger has against its files. A damaged table, which is all that
// does so in practice, is found before Badger opens it, and ends the database alone.
package databasetest
