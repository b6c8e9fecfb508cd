package blob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/lean"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxOwed bounds the deletions that are owed: 16 bytes each in the file,
	// and some 50 in memory. It is what a writer remembers of a tier that is
	// off, too.
	maxOwed = 1 << 18
	// payEvery is how often owed deletions are tried again.
	payEvery = time.Second
	// payBatch is how many go at a time.
	payBatch = 1024
)

// debts are the deletions that the tiers below still owe: a tier in trouble may
// hold an old value of each of these names. Until that is deleted the name reads
// as absent and takes no value.
//
// The mutex is a leaf. Every debt is also in a file, so that
// a kill of the process does not bring the old values back; see journal.
type debts struct {
	journal journal
	n       atomic.Int64 // how many are owed
	wake    chan struct{}
	mu      struct {
		sync.Mutex
		owed map[key.Hash]struct{}
		peak int        // of owed
		log  []key.Hash // all since there were none, as in the file
	}
}

// openDebts takes over what an earlier process owed according to the file at
// path; "" is no file, and then nothing is known of an earlier process.
func openDebts(path string) (*debts, error) {
	d := &debts{wake: make(chan struct{}, 1)}
	d.mu.owed = make(map[key.Hash]struct{})
	if path == "" {
		return d, nil
	}
	hashes, err := d.journal.open(path)
	if err != nil {
		return nil, err
	}
	d.mu.log = hashes
	for _, h := range hashes {
		d.mu.owed[h] = struct{}{}
	}
	if d.n.Store(int64(len(d.mu.owed))); len(hashes) > 0 {
		d.wake <- struct{}{}
	}
	return d, nil
}

// owes reports whether a deletion of the name with that hash is owed.
func (d *debts) owes(h key.Hash) bool {
	if d.n.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.mu.owed[h]
	return is
}

// add is false if there is no room for more.
func (d *debts) add(h key.Hash) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, twice := d.mu.owed[h]; twice {
		return true
	}
	if len(d.mu.log) >= maxOwed {
		return false
	}
	d.mu.owed[h] = struct{}{}
	d.mu.log = append(d.mu.log, h)
	d.n.Store(int64(len(d.mu.owed)))
	select {
	case d.wake <- struct{}{}:
	default:
	}
	return true
}

// owe remembers a deletion, for the next process too. If it cannot, the error
// is ErrUncertain; names there is room for read as absent all the same.
func (d *debts) owe(h key.Hash) error {
	if !d.add(h) {
		return fmt.Errorf("%w: %d deletions are owed already", ErrUncertain, maxOwed)
	}
	if err := d.journal.write(d.since); err != nil {
		return fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return nil
}

// since returns the debts after the first n of the log.
func (d *debts) since(n int) []key.Hash {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.log[min(n, len(d.mu.log)):]
}

// some returns at most n of the deletions that are owed.
func (d *debts) some(n int) []key.Hash {
	d.mu.Lock()
	defer d.mu.Unlock()
	hashes := make([]key.Hash, 0, min(n, len(d.mu.owed)))
	for h := range d.mu.owed {
		if len(hashes) == n {
			break
		}
		hashes = append(hashes, h)
	}
	return hashes
}

// paid forgets deletions that were made, and the file with the last of them.
func (d *debts) paid(hashes []key.Hash) error {
	d.mu.Lock()
	for _, h := range hashes {
		lean.Delete(&d.mu.owed, h, &d.mu.peak)
	}
	d.n.Store(int64(len(d.mu.owed)))
	d.mu.Unlock()
	return d.journal.clear(d.restart)
}

// restart empties the log if nothing is owed, and reports whether it did.
func (d *debts) restart() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.owed) > 0 {
		return false
	}
	d.mu.log = nil
	return true
}

// ErrUncertain says that an old value may come back: it could not be deleted,
// nor could it be remembered that it is to be.
var ErrUncertain = errors.New("the old value may come back")

// ErrOwed says that a name takes no value, because the deletion of an older one
// is still owed.
var ErrOwed = errors.New("an older value is still to be deleted below")

// Owed is how many deletions the tiers below owe.
func (s *Store) Owed() int64 { return s.debts.n.Load() }

// owe remembers the deletion of a name that failed.
func (s *Store) owe(h key.Hash, why error) error {
	if s.debts.n.Load() == 0 {
		s.o.Log.Warn().Err(why).Str("store", s.o.Space).
			Msg("an old value cannot be deleted below now; its name reads as absent, and takes no value, until it is. More of them are counted")
	}
	return s.debts.owe(h)
}

// keepPaying makes owed deletions as soon as the tiers answer, until ctx ends.
func (s *Store) keepPaying(ctx context.Context) {
	for {
		select {
		case <-s.debts.wake:
		case <-ctx.Done():
			return
		}
		for s.debts.n.Load() > 0 {
			if s.pay(ctx) {
				continue
			}
			select {
			case <-time.After(payEvery):
			case <-ctx.Done():
				s.o.Log.Warn().Int64("owed", s.Owed()).Str("store", s.o.Space).Str("path", s.debts.journal.path).
					Msg("old values are still to be deleted below; the file says which, for the next start")
				return
			}
		}
	}
}

// pay makes some owed deletions and reports whether it did. No name that is
// owed is stored meanwhile, so that no lock is needed. A tier that is off is
// probed, because deletions do not.
func (s *Store) pay(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, payTimeout)
	defer cancel()
	hashes := s.debts.some(payBatch)
	ks := make([]key.Key, len(hashes))
	for i, h := range hashes {
		ks[i] = key.Key{Space: s.space, Hash: h}
	}
	_, err := s.o.Stack.Delete(ctx, ks)
	if err != nil && s.o.Stack.SyncDisk(ctx) == nil {
		_, err = s.o.Stack.Delete(ctx, ks)
	}
	if err == nil {
		err = s.debts.paid(hashes)
	}
	if err != nil {
		s.o.Log.Debug().Err(err).Str("store", s.o.Space).Msg("old values are still owed")
		return false
	}
	if s.Owed() == 0 {
		s.o.Log.Info().Str("store", s.o.Space).Msg("all old values are deleted below")
	}
	return true
}

// payTimeout bounds one try.
const payTimeout = 10 * time.Second
