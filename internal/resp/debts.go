package resp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

const (
	// maxOwed deletions take some 50 bytes each. A writer remembers as many of a tier that
	// is off.
	maxOwed = 1 << 18
	// payEvery is how often owed deletions are tried again, and payTimeout bounds one
	// try.
	payEvery   = time.Second
	payTimeout = 10 * time.Second
	// payBatch is how many go at a time.
	payBatch = 1024
)

// ErrUncertain says that an old value may come back: it could not be deleted, and there
// is no room to remember that it is to be.
var ErrUncertain = errors.New("the old value may come back")

// ErrOwed says that a name takes no value, because the deletion of an older one
// is still owed.
var ErrOwed = errors.New("an older value is still to be deleted below")

// debts are the deletions that the tiers below still owe: a tier in trouble may
// hold an old value of each of these names. The mutex is a leaf.
type debts struct {
	n    atomic.Int64 // how many are owed
	wake chan struct{}
	mu   struct {
		sync.Mutex
		owed map[key.Hash]struct{}
	}
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

// add remembers a deletion, of at most most. The error is ErrUncertain.
func (d *debts) add(h key.Hash, most int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.owed) >= most {
		return fmt.Errorf("%w: %d deletions are owed already", ErrUncertain, most)
	}
	if d.mu.owed == nil {
		d.mu.owed = make(map[key.Hash]struct{})
	}
	d.mu.owed[h] = struct{}{}
	d.n.Store(int64(len(d.mu.owed)))
	base.Poke(d.wake)
	return nil
}

// some returns at most payBatch of the deletions that are owed.
func (d *debts) some() []key.Hash {
	d.mu.Lock()
	defer d.mu.Unlock()
	hashes := make([]key.Hash, 0, min(payBatch, len(d.mu.owed)))
	for h := range d.mu.owed {
		if len(hashes) == payBatch {
			break
		}
		hashes = append(hashes, h)
	}
	return hashes
}

// paid forgets deletions that were made.
func (d *debts) paid(hashes []key.Hash) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range hashes {
		delete(d.mu.owed, h)
	}
	if len(d.mu.owed) == 0 {
		d.mu.owed = nil // a map never shrinks
	}
	d.n.Store(int64(len(d.mu.owed)))
}

// Owed is how many deletions the tiers below owe.
func (s *Store) Owed() int64 { return s.debts.n.Load() }

// owe remembers the deletion of a name that failed.
func (s *Store) owe(h key.Hash, why error) error {
	if s.Owed() == 0 {
		s.o.Log.Warn().Err(why).
			Msg("an old value cannot be deleted below now; its name reads as absent, and takes no value, until it is. More of them are counted")
	}
	return s.debts.add(h, s.o.MaxOwed)
}

// keepPaying makes owed deletions as soon as the tiers answer, until ctx ends.
func (s *Store) keepPaying(ctx context.Context) {
	for base.Await(ctx, s.debts.wake) {
		for s.Owed() > 0 {
			if s.pay(ctx) {
				continue
			}
			if base.Sleep(ctx, payEvery) != nil {
				s.o.Log.Warn().Int64("owed", s.Owed()).Msg("old values were still to be deleted below; they may come back")
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
	hashes := s.debts.some()
	ks := make([]key.Key, len(hashes))
	for i, h := range hashes {
		ks[i] = key.Key{Space: Space, Hash: h}
	}
	_, err := s.o.Tiers.Remover.Delete(ctx, ks)
	if err != nil && s.o.Tiers.Writers.SyncDisk(ctx) == nil {
		_, err = s.o.Tiers.Remover.Delete(ctx, ks)
	}
	if err != nil {
		s.o.Log.Debug().Err(err).Msg("old values are still owed")
		return false
	}
	if s.debts.paid(hashes); s.Owed() == 0 {
		s.o.Log.Info().Msg("all old values are deleted below")
	}
	return true
}
