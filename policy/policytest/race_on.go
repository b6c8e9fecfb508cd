//go:build race

package policytest

// The race detector costs an order of magnitude, and a policy is one
// goroutine's.
const ops = Ops / 10
