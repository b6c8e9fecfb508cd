package client

import "github.com/kvstored/kvstored/internal/wire"

// Fault is one of the request configs, or one of the actions in their kv_hints, that
// did not count, and why. All others did.
type Fault = wire.Fault

// NoAction as the action of a Fault says that a config is at fault.
const NoAction = wire.NoAction

// Hinted is what became of a hint.
type Hinted struct {
	Retained Count // chunks that the claims of the hint cover now
	Faults   []Fault
}

// Subject is what a hint is about: Prompt; or else the prompt of an earlier Prefetch of
// this user, by its LookupID; or else the last prompt in Space of the session that the
// configs name.
type Subject struct {
	Prompt   *Prompt
	LookupID string
	Space    *Space
}

func pairs(configs map[string]string) (l wire.Pairs) {
	for name, value := range configs {
		l = l.Add(name, value)
	}
	return l
}
