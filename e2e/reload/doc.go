// Package reload tests what daemons do by a configuration that changes while they run:
// each key that a reload applies, rules of access at every front end, and limits of users.
//
// It needs nothing else; without root the tests that are other users are skipped.
package reload
