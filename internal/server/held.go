package server

import "github.com/kvstored/kvstored/internal/ledger"

// live lists the jobs and fills of a connection.
func (c *session) live() (jobs []*job, fills []*fill) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, j := range c.mu.jobs {
		jobs = append(jobs, j)
	}
	for _, f := range c.mu.fills {
		fills = append(fills, f)
	}
	return jobs, fills
}

// leasedBytes sums the payloads of leases and fills, each chunk once.
func (c *session) leasedBytes() (n uint64) {
	jobs, fills := c.live()
	seen := make(map[ledger.ID]bool)
	for _, j := range jobs {
		j.mu.Lock()
		for _, r := range j.mu.refs {
			if !seen[r.ID] {
				seen[r.ID] = true
				n += uint64(r.Block.Len())
			}
		}
		j.mu.Unlock()
	}
	for _, f := range fills {
		f.mu.Lock()
		for _, s := range f.mu.slots {
			if s.ref.Valid() {
				n += uint64(s.ref.Block.Len())
			}
		}
		f.mu.Unlock()
	}
	return n
}

// revokeAll frees all that a connection holds, and returns how many chunks
// that was. The connection stays and may hold something else.
func (c *session) revokeAll() (n int) {
	c.whileOpen(func() {
		jobs, fills := c.live()
		for _, j := range jobs {
			n += j.revoke("an administrator wants its memory")
		}
		for _, f := range fills {
			n += f.revoke("an administrator wants its memory")
		}
		n += c.server.pins.drop(c)
	})
	return n
}
