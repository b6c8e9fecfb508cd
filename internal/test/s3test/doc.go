// Package s3test has S3 stores for tests of the remote tier:
//
//   - [Run] starts a server in this process, over a bucket in memory, which
//     checks signatures. With the path of a versitygw program in the variable
//     [GatewayVariable] it starts that one: the same tests, and those of this
//     package, pass with both, so that the server here does nothing a real one
//     does not.
//   - [Memory] is the same bucket as an http.RoundTripper, for tests in virtual
//     time.
//   - [Faults] decorates either of them and makes requests fail; [Proxy] is such
//     a decorator with an address.
//   - [Start] builds and runs versitygw, for benchmarks. Its module is the folder
//     versitygw, so that nothing of it enters ours.
//
// The server knows the requests that the remote tier makes, with conditional
// puts and ranges, and refuses others as not implemented.
//
// Locks: one in Memory, one in Faults, one around the objects; leaves. Buffers:
// a stored body belongs to the store and is never changed. Goroutines and
// processes end with the test.
package s3test
