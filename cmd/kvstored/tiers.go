package main

import (
	"fmt"
	"strings"

	"github.com/kvstored/kvstored/client"
)

// tierNames are the tiers in the order of client.TierCounts, as the protocol has them.
var tierNames = [...]string{"cpu", "disk", "remote"}

// tierTitles are the same, as people call them.
var tierTitles = [...]string{"DRAM", "disk", "remote"}

// placeName is the name of a tier as the protocol has it, if it is what people call one.
func placeName(name string) string {
	if strings.EqualFold(name, "DRAM") {
		return tierNames[0]
	}
	return name
}

// tiersOf reads names of tiers.
func tiersOf(names ...string) (t client.Tiers, err error) {
next:
	for _, name := range names {
		for i, known := range tierNames {
			if placeName(name) == known {
				t |= client.CPU << i
				continue next
			}
		}
		return 0, usage(fmt.Errorf("%q is no tier; write %s (DRAM is cpu)", name, strings.Join(tierNames[:], ", ")))
	}
	return t, nil
}
