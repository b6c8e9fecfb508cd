// Package s3test runs a real S3 server for tests: versitygw, built from the
// module in the folder versitygw, so that nothing of it enters ours, over a
// temporary folder and on a loopback port. In front of it there may be a
// [Proxy] that makes requests fail the way networks and stores do.
//
// The first build takes about two minutes; the program is then kept in the
// user's cache folder. Where it cannot be built tests are skipped, except
// where CI is set.
//
// [Memory] is a store in memory instead, for tests in virtual time.
//
// Locks: one in Proxy and one in Memory, leaves. Goroutines and processes end
// with the test.
package s3test
