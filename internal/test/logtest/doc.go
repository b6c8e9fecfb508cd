// Package logtest keeps the log of a test, for the test to read. It is
// for tests only, and never waits.
//
// Locks: one mutex around the text, a leaf. Buffers: written lines are copied.
package logtest
