// Package wiretest has the protocol as testdata/wire/schema.json describes it, for
// tests: what a frame consists of, and what a newer daemon may send in its place.
//
// It does not know the codec of package wire, which is tested against it. A Schema
// is not changed once it is read; its methods may be called from any number of
// goroutines.
package wiretest
