package policy

// trust is whether what was learned holds. After an abrupt change of load the
// tables speak of sessions that are over, and whoever ranks by them keeps the
// dead: until as much is asked for again as they promise, the order is by age.
type trust struct {
	kept float64 // of what was promised lately, how much came; 1 = all, at most trustMost
	rate float64 // promised: watched tenants asked for again per token of time
	seen float64 // of them, in the request at hand
	lost bool
}

// Promises are judged over some 500 of them: fewer are the whim of a long
// prompt, and while there are more the dead have pushed out the living. What
// comes beyond them counts up to half as much again, so that 680 broken ones
// lose any trust; were it not to count, a lean stretch of a load that has not
// changed would. Trust is gained again a little above where it was lost, so
// that it does not flicker.
const (
	trustWindow = 512
	trustLost   = 0.4
	trustGained = 0.6
	trustMost   = 1.5
)

// note takes in that a tenant was asked for again.
func (t *trust) note(n *tenant) {
	if n.watch != 0 {
		t.seen++
	}
}

// judge takes in a request of so many tokens, and reports whether trust was
// lost or gained by it.
func (t *trust) judge(tokens int64) (turned bool) {
	t.kept = min((t.kept*trustWindow+t.seen)/(trustWindow+t.rate*float64(tokens)), trustMost)
	t.seen = 0
	was := t.lost
	t.lost = t.kept < trustLost || was && t.kept < trustGained
	return t.lost != was
}
