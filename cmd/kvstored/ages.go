package main

import (
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

// ages is how many chunks have a bound on their age.
func (v *statsView) ages(l *cli.List) {
	if n, out := v.Store.Aged, v.Store.AgedOut; n > 0 || out > 0 {
		l.Row("ages", "%s with a largest age; %s removed because of it", human.Plural(n, "chunk"), human.Count(out))
	}
}
