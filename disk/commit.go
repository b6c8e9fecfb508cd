package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// change is something to write to the database.
type change interface {
	// apply adds it to the batch. After an error it is not part of it.
	apply(b *batch) error
	// committed is told once what came of it, without a lock held.
	committed(err error)
}

// committer groups changes: one goroutine commits whatever has come up while
// the commit before was under way. Changes reach the database in the order in
// which they were added.
type committer struct {
	store    *store
	commits  atomic.Uint64
	bytes    atomic.Int64 // keys and values
	progress atomic.Uint64
	mu       struct {
		sync.Mutex
		queue   []change
		stopped bool
	}
	wake  chan struct{}
	first uint64 // sequence number of this process's first record
	seq   uint64 // of the next record; only the running goroutine uses it
}

// errUncertain says that a change may be in the database, or come to be there,
// although its commit failed.
var errUncertain = errors.New("not all of it was written")

// maxChanges in one commit keeps its latency down.
const maxChanges = 4096

// retryEvery is how often what could not be committed is tried again while
// nothing new comes up.
const retryEvery = time.Second

// newCommitter numbers records upward from all there are: a commit raises
// Badger's version by one or more and numbers at most maxChanges records, of
// the 2^20 that one version leaves room for. One that fails may number as many
// and leave the version as it was; 255 of those for each that succeeds, with a
// database opened again after each, would still be too few to run out.
func newCommitter(s *store) *committer {
	first := (s.db.MaxVersion() + 1) << 20
	return &committer{store: s, wake: make(chan struct{}, 1), first: first, seq: first}
}

// add queues a change.
func (c *committer) add(ch change) error {
	return c.addWith(func() change { return ch })
}

// addWith queues what make returns, or nothing if that is nil. No other
// change is queued while make runs: whoever takes a key out of the ledger
// does so there, so that a later Put of the key is committed after its
// deletion. make may lock the ledger, and does no I/O.
func (c *committer) addWith(make func() change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return tier.ErrClosed
	}
	if ch := make(); ch != nil {
		c.mu.queue = append(c.mu.queue, ch)
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
	return nil
}

// again queues a change whose commit failed, to go with the next one, or when
// run tries again.
func (c *committer) again(ch change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.queue = append([]change{ch}, c.mu.queue...)
}

// run commits until ctx ends, and then what is queued.
func (c *committer) run(ctx context.Context) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-c.wake:
			for c.commit(c.take(false)) {
			}
		case <-retry.C:
			for c.commit(c.take(false)) {
			}
		case <-ctx.Done():
			for last := c.take(true); len(last) > 0; last = last[min(len(last), maxChanges):] {
				c.commit(last[:min(len(last), maxChanges)])
			}
			return nil
		}
	}
}

// take returns the next changes; the last ones, all of them, when it stops.
func (c *committer) take(stop bool) []change {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.mu.queue)
	if stop {
		c.mu.stopped = true
	} else if n > maxChanges {
		n = maxChanges
	}
	taken := c.mu.queue[:n:n]
	c.mu.queue = c.mu.queue[n:]
	if len(c.mu.queue) == 0 {
		c.mu.queue = nil
	}
	return taken
}

// commit writes changes as one group and tells each what came of it. It
// reports whether it got somewhere, so that there may be more to do: what it
// could not apply is queued again, and is not to be tried over and over.
func (c *committer) commit(changes []change) bool {
	if len(changes) == 0 {
		return false
	}
	db, err := c.store.try()
	if err != nil {
		c.progress.Add(1)
		for _, ch := range changes {
			ch.committed(err)
		}
		return false
	}
	b := &batch{wb: db.NewWriteBatch(), seq: c.seq, room: c.store.room()}
	refused := make([]error, len(changes)) // told later: Badger may have a part of what they own
	applied := len(changes)
	for i, ch := range changes {
		if refused[i] = ch.apply(b); refused[i] != nil {
			applied--
		}
	}
	c.seq = b.seq
	if err = b.wb.Flush(); err != nil {
		b.wb.Cancel() // waits for what Badger has begun, as a Flush that fails early does not
		err = fmt.Errorf("disk: commit of %d changes: %w: %w", applied, errUncertain, err)
		c.store.failed(err)
	}
	c.store.leave()
	c.commits.Add(1)
	c.bytes.Add(b.bytes)
	c.progress.Add(1)
	for i, ch := range changes {
		ch.committed(cmp.Or(refused[i], err))
	}
	return err == nil && applied > 0
}

// queued is how many changes wait.
func (c *committer) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.queue)
}

// batch collects the writes of one commit.
type batch struct {
	wb    *badger.WriteBatch
	seq   uint64
	room  roomLeft
	bytes int64
}

// roomLeft is how much air the database's file system has. Badger maps its
// files: a page that finds no block there would end the process.
type roomLeft uint8

const (
	roomNone    roomLeft = iota
	roomDeletes          // enough to free some
	roomAll
)

// put numbers and adds a record.
func (b *batch) put(e *record.Entry, dbKey, value []byte) error {
	if b.room < roomAll {
		return fmt.Errorf("disk: the database's file system is nearly full: %w", tier.ErrNoSpace)
	}
	e.Seq = b.seq
	b.seq++
	return b.set(dbKey, record.AppendEntry(value[:0], e))
}

// rewrite replaces a record; it keeps its number, which orders payloads.
func (b *batch) rewrite(e *record.Entry, dbKey []byte) error {
	if b.room < roomAll {
		return nil
	}
	return b.set(dbKey, record.AppendEntry(make([]byte, 0, record.EntryBytes), e))
}

func (b *batch) set(dbKey, value []byte) error {
	b.bytes += int64(len(dbKey) + len(value))
	return b.wb.SetEntry(badger.NewEntry(dbKey, value))
}

// delete drops k's record, and its payload if that is inline.
func (b *batch) delete(k key.Key, inline bool) error {
	if b.room < roomDeletes {
		return fmt.Errorf("disk: the database's file system is full: %w", tier.ErrNoSpace)
	}
	entry, payload := record.EntryKey(k), record.PayloadKey(k) // the batch keeps both
	b.bytes += int64(len(entry))
	if err := b.wb.Delete(entry[:]); err != nil || !inline {
		return err
	}
	b.bytes += int64(len(payload))
	return b.wb.Delete(payload[:])
}
