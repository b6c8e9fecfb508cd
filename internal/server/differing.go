package server

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

const (
	// maxDiffering bounds the spaces that are counted each by itself; the
	// others share a count.
	maxDiffering = 128
	// differingQuiet is how long the log says nothing more of a space.
	differingQuiet = time.Minute
)

// differing counts chunks that a client would have stored with other bytes
// than are stored under their key, or with another length. The first copy
// stays. Its mutex is a leaf.
type differing struct {
	mu struct {
		sync.Mutex
		spaces map[key.SpaceID]*differs
		others uint64 // of spaces beyond maxDiffering
		said   time.Time
	}
}

// differs counts the chunks of one space.
type differs struct {
	n      uint64
	logged uint64    // how many of them the log has told of
	said   time.Time // when it did
}

// add counts a chunk, and returns how many the log should tell of now; 0: none.
func (d *differing) add(id key.SpaceID, now time.Time) uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.spaces == nil {
		d.mu.spaces = make(map[key.SpaceID]*differs)
	}
	s := d.mu.spaces[id]
	if s == nil && len(d.mu.spaces) < maxDiffering {
		s = new(differs)
		d.mu.spaces[id] = s
	}
	if s == nil {
		d.mu.others++
		if now.Sub(d.mu.said) < differingQuiet {
			return 0
		}
		d.mu.said = now
		return 1
	}
	s.n++
	if now.Sub(s.said) < differingQuiet {
		return 0
	}
	n := s.n - s.logged
	s.said, s.logged = now, s.n
	return n
}

// counts is how many there were of each space by its id in hexadecimal, and
// under "others" of the spaces that are not counted by themselves.
func (d *differing) counts() map[string]uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make(map[string]uint64, len(d.mu.spaces)+1)
	for id, s := range d.mu.spaces {
		out[hex.EncodeToString(id[:])] = s.n
	}
	if d.mu.others > 0 {
		out["others"] = d.mu.others
	}
	return out
}

// logDiffering counts a chunk that is stored with other bytes than a client has for
// it, and says so in the log.
func logDiffering(c *session, chain *key.Chain, i int, noticed string) {
	c.server.count.differs.Add(1)
	n := c.server.differing.add(chain.Space, time.Now())
	if n == 0 {
		return
	}
	space := c.server.catalog.space(chain.Space)
	c.log.Warn().Hex("space", chain.Space[:]).Str("model", space.Model).Int("rank", space.Worker).Int("ranks", space.World).
		Hex("key", chain.Hashes[i][:]).Uint64("chunks", n).Str("noticed", noticed).
		Msg("other bytes under a known key: the first copy stays, and is what every client gets; " +
			"either the engine's bytes vary from run to run, as on a GPU, or its keys do not tell apart what differs (rank, dtype, layout, weights)")
}
