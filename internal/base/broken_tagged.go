//go:build invariants

package base

const tagged = true
