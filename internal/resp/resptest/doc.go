// Package resptest has the Redis client that understands least, for tests.
// It owns its connection; a client is for one goroutine. Values are read into the
// buffers of the caller.
package resptest
