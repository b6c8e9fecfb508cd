// Package lm speaks the protocol of LMCache's own small server, lm://: fixed
// frames of 186 and 36 bytes, one request at a time on a connection. It is
// there for compatibility; docs/lm.md says what else there is.
//
// It owns its listener's connections. Values are kept by internal/blob, with
// what their reply has to repeat in front of them. A payload is read straight
// into the arena and written straight out of it. One goroutine a connection,
// no locks.
package lm
