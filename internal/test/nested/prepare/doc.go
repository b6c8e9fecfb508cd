// Command prepare builds the programs that tests find with package nested, and
// prints the path of each. The first build takes some minutes and downloads the
// modules of those programs; the next one nothing.
//
//	go run ./internal/test/nested/prepare
package main
