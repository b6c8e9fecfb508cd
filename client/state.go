package client

import (
	"slices"

	"github.com/kvstored/kvstored/internal/wire"
)

// State is how far a job is.
type State struct {
	Done       bool
	Reason     Reason // why it is done, or Running
	FailedTier string // with StoppedFailed
	Ready      Count  // the leading run that Chunk and Copy can read; it only grows
	Tiers      TierCounts
}

// update reads a job state, from a push or a reply.
func (j *Job) update(body []byte) error {
	var m wire.JobState
	if err := m.Decode(body); err != nil {
		return broken("%w", err)
	}
	return j.apply(&m)
}

// apply takes in a state. Refs may repeat known ones, never leave a gap.
func (j *Job) apply(m *wire.JobState) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.mu.ended { // otherwise pushes were passed over, and no caller reads any more
		if err := j.addRefs(int(m.First), m.Refs); err != nil {
			return err
		}
		if j.mu.needs = slices.Clone(m.Needs); !j.enough(m) {
			return broken("job %d: %d chunks are ready, %d refs came", j.id, m.Ready.Chunks, len(j.mu.refs))
		}
	}
	j.mu.state = stateOf(m)
	j.mu.changed.Wake()
	return nil
}

func stateOf(m *wire.JobState) State {
	return State{Done: m.Done(), Reason: m.Code, FailedTier: m.FailedTier.String(), Ready: m.Ready, Tiers: m.Tiers}
}

// addRefs appends those of refs, of which the first is chunk first, that are new.
func (j *Job) addRefs(first int, refs wire.Refs) error {
	first *= j.ranks // from now on in refs
	have, n := len(j.mu.refs), refs.Len()
	switch {
	case first+n <= have || n == 0:
		return nil
	case first > have:
		return broken("job %d: refs from number %d on, but only %d came before", j.id, first, have)
	}
	j.mu.refs = slices.Grow(j.mu.refs, first+n-have)
	for i := have - first; i < n; i++ {
		r := refs.At(i)
		if size := j.c.hello.ArenaBytes; j.c.Mapped() && (r.Offset > size || uint64(r.Length) > size-r.Offset) {
			return broken("job %d: ref %d lies outside the arena", j.id, first+i)
		}
		j.mu.refs = append(j.mu.refs, r)
	}
	return nil
}
