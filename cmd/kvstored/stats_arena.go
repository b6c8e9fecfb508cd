package main

import (
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

// printArena says what the memory of DRAM is made of.
func (v *statsView) printArena(l *cli.List) {
	l.Row("", "%s in huge pages, of %s; largest free run %s", human.Bytes(v.Arena.HugeBytes), human.Bytes(v.Arena.CapacityBytes), human.Bytes(v.Arena.LargestFreeBytes))
}
