// Package distrust remembers the spaces whose chunks are misses: an engine has computed
// some of them anew, and got other values.
//
// # Owns
//
// The list of these spaces, each with the user that said so and the time; 64 of one user
// at most. The disk tier keeps it in a file, and adds that each time that it opens.
//
// # Never does
//
// The package deletes nothing. Package stack answers misses, package server asks for rights.
//
// # Locks
//
// One mutex, not held over the file, which one goroutine writes at a time. Readers take none.
package distrust
