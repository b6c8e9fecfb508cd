//go:build !race

package policytest

const ops = Ops

// Raced is whether the race detector runs: tests of one goroutine do less then.
const Raced = false
