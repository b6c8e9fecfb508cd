package feed

// Stats count what a publisher has said.
type Stats struct {
	Batches    uint64 `json:"batches"`    // applied
	Blocks     uint64 `json:"blocks"`     // stored or removed
	Passed     uint64 `json:"passed"`     // events that are passed over: other groups, images, pairs
	Refused    uint64 `json:"refused"`    // events and batches with an error
	Duplicates uint64 `json:"duplicates"` // batches
	Gaps       uint64 `json:"gaps"`
	Restarts   uint64 `json:"restarts"`
	Garbage    uint64 `json:"garbage"`   // batches that could not be decoded
	Forgotten  uint64 `json:"forgotten"` // times that all was forgotten
	Dropped    uint64 `json:"dropped"`   // events that waited for their parents in vain
	Floods     uint64 `json:"floods"`    // times that there were too many blocks
	Silences   uint64 `json:"silences"`  // times that nothing came though something was due
	Held       int    `json:"held"`      // blocks that the worker has, each for each medium
	Connected  bool   `json:"connected"`
	Waiting    int    `json:"waiting"` // events that wait now
}

// Stats returns the numbers, and the last error.
func (p *Publisher) Stats() (Stats, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.mu.stats
	s.Waiting, s.Held, s.Connected = p.mu.waiting.pieces, p.held(), p.mu.lost.IsZero()
	return s, p.mu.lastSaid
}

// held is how many blocks the publisher says that its worker has, in all media.
func (p *Publisher) held() (n int) {
	for _, s := range p.mu.shards {
		n += s.Held(p.w.Worker)
	}
	return n
}
