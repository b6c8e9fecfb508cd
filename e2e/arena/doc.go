// Package arena tests the shared memory of a daemon with clients in processes of their
// own: what another user can do to it, what a limit of locked memory says, and blocks
// that are kept until a process has ended.
//
// It needs Linux; without root the tests of other users are skipped.
package arena
