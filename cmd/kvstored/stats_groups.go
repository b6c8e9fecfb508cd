package main

import (
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

// printGroups says what the groups of hybrid models take, and what their prompts lost.
func (v *statsView) printGroups(l *cli.List) {
	for i, name := range tierNames {
		for _, g := range v.Store.Groups[name] {
			if g.Chunks > 0 {
				l.Row(g.Kind+" groups", "%s, %s in %s; %s of them go first", human.Plural(g.Chunks, "chunk"), human.Bytes(g.Bytes), tierTitles[i], human.Bytes(g.DeadBytes))
			}
		}
	}
	if n := v.Store.Boundaries.Boundaries; n > 0 {
		l.Row("boundaries", "%s of prompts of hybrid models", human.Plural(n, "usable length"))
	}
	for _, lost := range v.Server.Lost {
		l.Row("lost to "+lost.Group, "%s: %s", human.Plural(lost.Tokens, "token"), lost.Reason)
	}
}
