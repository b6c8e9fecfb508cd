//go:build !race

package policytest

const ops = Ops
