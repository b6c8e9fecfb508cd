package disk

import (
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxUses uses a second are written down; more are let go. A key that is used
	// often will be noted at a later use.
	maxUses = 4096
	// useGrain is how old a record's time of last use must be, in seconds,
	// to be worth a write.
	useGrain = 60
)

// uses collects keys whose last use is to be written down, so that recency
// survives a restart roughly.
type uses struct {
	sync.Mutex
	keys []key.Key
}

// add keeps the first keys of ks, as many as there is room for.
func (u *uses) add(ks []key.Key) {
	u.Lock()
	defer u.Unlock()
	n := min(len(ks), maxUses-len(u.keys))
	u.keys = append(u.keys, ks[:n]...)
}

func (u *uses) take() []key.Key {
	u.Lock()
	defer u.Unlock()
	ks := u.keys
	u.keys = nil
	return ks
}

// saveUses queues the collected uses.
func (m maintenance) saveUses() {
	t := m.t
	if ks := t.uses.take(); len(ks) > 0 {
		_ = t.commits.Add(&useNotes{t: t, keys: ks}) // closed: the order suffers, no more
	}
}

// useNotes rewrites the records of keys with the present time.
type useNotes struct {
	t    *instance
	keys []key.Key
}

// Apply asks the ledger about each key: a deletion that is queued before this
// has taken the key out of it already, and must not be undone.
func (u *useNotes) Apply(b *metadata.Batch) error {
	at := now()
	for ks := range slices.Chunk(u.keys, usesAtOnce) {
		err := u.t.db.Entries(ks, func(i int, e *database.Entry) { u.rewrite(b, ks[i], e, at) })
		if err != nil {
			return err
		}
	}
	return nil
}

// usesAtOnce is how many records are asked for at once.
const usesAtOnce = 512

func (u *useNotes) rewrite(b *metadata.Batch, k key.Key, e *database.Entry, at uint32) {
	known, state := u.t.ledger.Find(k)
	if state != ledger.Resident || at-e.Used < useGrain || known.Value != valueOf(e) {
		return
	}
	e.Used = at
	e.Hits++
	b.Rewrite(e)
}

func (u *useNotes) Committed(error) {}

// now is the time as records keep it.
func now() uint32 { return uint32(time.Now().Unix()) }
