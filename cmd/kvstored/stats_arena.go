package main

import (
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

// printArena says what the memory of DRAM is made of.
func (v *statsView) printArena(l *cli.List) {
	if a := &v.Arena; a.PopulatedBytes < a.CapacityBytes {
		l.Row("", "%s of %s are populated, %s", human.Bytes(a.PopulatedBytes), human.Bytes(a.CapacityBytes), human.Percent(float64(a.PopulatedBytes), float64(a.CapacityBytes)))
	}
	l.Row("", "%s in huge pages, of %s; largest free run %s", human.Bytes(v.Arena.HugeBytes), human.Bytes(v.Arena.CapacityBytes), human.Bytes(v.Arena.LargestFreeBytes))
}
