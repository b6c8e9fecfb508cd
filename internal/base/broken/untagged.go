//go:build !invariants

package broken

const tagged = false
