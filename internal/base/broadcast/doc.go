// Package broadcast wakes all goroutines that wait for a change, or one, and lets one wait
// for some time. It owns nothing but a channel and has no lock of its own.
package broadcast
