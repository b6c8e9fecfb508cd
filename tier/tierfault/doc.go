// Package tierfault wraps a tier so that tests can make it fail, hang, lie or
// deliver half of an answer, call by call and without chance.
//
// It is for tests only. It owns nothing but how often each operation was
// called. A wrapped tier keeps its roles. Time passes only in timers, so that it works under testing/synctest.
//
// Locks: one mutex around the counts; the hook is called without it, from any
// goroutine. Buffers: those of the wrapped tier.
package tierfault
