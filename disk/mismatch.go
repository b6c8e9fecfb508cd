package disk

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/key"
)

// mismatchEvery is how often payloads that do not have their checksum are told
// of: a device that returns wrong bytes does so again and again.
const mismatchEvery = time.Minute

// mismatches are the payloads that did not have their checksum since the log
// was told. Its mutex is a leaf.
type mismatches struct {
	log zerolog.Logger

	sync.Mutex
	n    int
	told time.Time
}

// due takes the number when the log may be told.
func (m *mismatches) due(more int) (n int) {
	m.Lock()
	defer m.Unlock()
	m.n += more
	if m.n == 0 || time.Since(m.told) < mismatchEvery {
		return 0
	}
	n, m.n, m.told = m.n, 0, time.Now()
	return n
}

// add reports the payload of k, and those before it.
func (m *mismatches) add(k key.Key, f found) {
	if n := m.due(1); n > 0 {
		m.log.Error().Int("payloads", n).Hex("last_key", k.Hash[:]).Uint32("segment", f.loc.segment()).Int64("offset", f.loc.offset()).
			Msg("payloads do not match their checksums; their entries are deleted")
	}
}

// report reports the payloads that add did not.
func (m *mismatches) report() {
	if n := m.due(0); n > 0 {
		m.log.Error().Int("payloads", n).Msg("more payloads did not match their checksums; their entries are deleted")
	}
}
