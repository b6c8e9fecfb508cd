// Package broadcast wakes all goroutines that wait for a change. It owns nothing
// but a channel, has no lock of its own, and never waits.
package broadcast
