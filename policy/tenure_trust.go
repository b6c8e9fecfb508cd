package policy

// trust is whether the tables hold. After an abrupt change of load they speak
// of sessions that are over, and a ranking by them keeps the dead: until as much
// is asked for again as the tables promise, the order is by age.
type trust struct {
	kept float64 // of the reuses promised lately, the share that came; at most trustMost
	rate float64 // promised: watched chunks asked for again per token of time
	seen float64 // of them, in the request at hand
	lost bool
}

// Promises are judged over some 500 of them: fewer are the whim of a long
// prompt, and while there are more the dead have pushed out the living. Reuses
// beyond the promised ones count up to half as much again, so that 680 broken
// promises lose any trust; if they did not count, a lean stretch of an unchanged
// load would lose it. Trust is gained again a little above where it was lost,
// so that it does not flicker.
const (
	trustWindow = 512
	trustLost   = 0.4
	trustGained = 0.6
	trustMost   = 1.5
)

// update takes in a request of so many tokens.
func (t *trust) update(tokens int64) {
	t.kept = min((t.kept*trustWindow+t.seen)/(trustWindow+t.rate*float64(tokens)), trustMost)
	t.seen = 0
	t.lost = t.kept < trustLost || t.lost && t.kept < trustGained
}

// A cache is guarded, the chunk asked for longest ago going first and no chunk being
// refused, until so much was observed that the tables know anything, and until it has
// held so much that not all happens within the first bin of age.
const (
	enoughSeen  = 128
	roomyTokens = 1 << firstBin
)

// regime is what victims are to be chosen by now.
func (p *tenure) regime() regime {
	switch {
	case !p.roomy || p.learner.seen < enoughSeen:
		return byUse
	case p.trust.lost:
		return byAge
	}
	return byValue
}
