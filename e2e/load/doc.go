// Package load has clients of end-to-end tests that store chains of chunks, and a [Book]
// of what must be there afterwards.
//
// # Owns
//
// Chains by number, in one space, whose sizes and bytes follow from their keys: whoever
// reads a chunk can tell whether it is right.
//
// # Concurrency
//
// Book.Store may run in many goroutines, and Book.Rest beside them. Who uses the fields
// or Age and Check meanwhile holds the Book's lock.
package load
