//go:build invariants

package broken

const tagged = true
