package disk

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/record"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// change is something to write to the database.
type change interface {
	// apply adds it to the batch. After an error it is not part of it.
	apply(b *batch) error
	// committed gets the result, once for each try: the error of apply or of
	// the commit, or nil. No lock is held.
	committed(err error)
}

// committer groups changes: one goroutine commits the changes that were queued while
// the commit before was under way, at most maxChanges at a time. Changes reach
// the database in the order in which they were added.
type committer struct {
	store   *store
	budget  budget
	commits atomic.Uint64
	bytes   atomic.Int64 // keys and values
	moved   atomic.Uint64
	mu      struct {
		sync.Mutex
		queue   []change
		stopped bool
	}
	wake  chan struct{}
	first uint64 // sequence numbers of earlier processes are below it; not to be changed
}

// budget is what the database may take of the capacity and of its file system.
type budget interface {
	// claim sets n bytes aside for a record, if there is room for them.
	claim(n int64) bool
	// claimAnyway sets n bytes aside for a deletion, or for what lies there already.
	claimAnyway(n int64)
	// settle ends the claims of a commit: the database holds so many bytes now;
	// 0 where that is not known.
	settle(held int64)
	// tight reports that deletions may come to need more than is left to them,
	// and that a compaction would help.
	tight() bool
	// compacted notes what a compaction has left.
	compacted(measure func() (held int64, err error)) error
	// room looks how much may be written.
	room() roomLeft
}

// errUncertain says that a change may be in the database, or come to be there,
// although its commit failed.
var errUncertain = errors.New("not all of it was written")

// maxChanges in one commit keeps its latency down.
const maxChanges = 4096

// retryEvery is how often changes that could not be committed are tried again
// while no new one is queued.
const retryEvery = time.Second

// compactTick is how often a compaction that commits wait for counts as progress.
const compactTick = 100 * time.Millisecond

// newCommitter is that of an epoch, whose numbers are higher than all before.
func newCommitter(s *store, b budget, epoch uint64) *committer {
	return &committer{store: s, budget: b, wake: make(chan struct{}, 1), first: epoch << folders.EpochShift}
}

// add queues a change.
func (c *committer) add(ch change) error {
	return c.addWith(func() change { return ch })
}

// addWith queues the change that make returns, unless that is nil. No other
// change is queued while make runs: a removal takes its keys out of the ledger
// there, so that a later Put of a key is committed after its deletion. make may
// lock the ledger, and does no I/O.
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

// run commits until ctx ends, and then the changes that are still queued.
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

// commit writes changes as one group and gives each its result. It reports
// whether a change was written, so that there may be more to do: a removal that
// was refused queues itself again, and is not to be tried over and over.
func (c *committer) commit(changes []change) bool {
	if len(changes) == 0 {
		return false
	}
	db, err := c.store.try()
	if err != nil {
		c.moved.Add(1)
		for _, ch := range changes {
			ch.committed(err)
		}
		return false
	}
	if c.budget.tight() {
		c.compact(db)
	}
	b := &batch{wb: db.Batch(), room: c.budget.room(), budget: c.budget}
	refused := make([]error, len(changes))
	applied := len(changes)
	for i, ch := range changes {
		if refused[i] = ch.apply(b); refused[i] != nil {
			applied--
		}
	}
	number := c.store.witness.next()
	b.number(number)
	if err = b.wb.Flush(); err != nil {
		c.budget.settle(0)
		err = fmt.Errorf("disk: commit of %d changes: %w: %w", applied, errUncertain, err)
		c.store.failed(db, err)
	} else {
		c.budget.settle(db.HeldBytes())
		c.store.witness.saw(number)
	}
	c.commits.Add(1)
	c.bytes.Add(b.bytes)
	c.moved.Add(1)
	for i, ch := range changes {
		ch.committed(cmp.Or(refused[i], err))
	}
	return err == nil && applied > 0
}

// compact has the database drop deleted records before the next deletions. That
// counts as progress to a change that waits for its commit meanwhile. Where it
// fails over the process, so does the commit that follows.
func (c *committer) compact(db *database.DB) {
	done := make(chan error, 1)
	go func() { done <- db.Compact() }() // ends with the process, at the latest
	for {
		select {
		case err := <-done:
			if err == nil {
				_ = c.budget.compacted(db.Measure) // without it there is one more
			}
			return
		case <-time.After(compactTick):
			c.moved.Add(1)
		}
	}
}

// stop takes no more changes, and returns those that are queued.
func (c *committer) stop() []change { return c.take(true) }

// still calls look while no change is queued.
func (c *committer) still(look func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look()
}

// progress grows while commits, or a compaction that they wait for, go on.
func (c *committer) progress() uint64 { return c.moved.Load() }

// counts is how many commits there were, and the bytes of their keys and values.
func (c *committer) counts() (commits uint64, bytes int64) { return c.commits.Load(), c.bytes.Load() }

// queued is how many changes wait.
func (c *committer) queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.queue)
}

// batch collects the writes of one commit.
type batch struct {
	wb     *database.Batch
	room   roomLeft
	budget budget
	bytes  int64
}

// roomLeft is how much air the database's file system has. Badger maps its
// files: a page that finds no block there would end the process.
type roomLeft uint8

const (
	roomNone    roomLeft = iota
	roomDeletes          // enough to free some
	roomAll
)

// put adds a record.
func (b *batch) put(e *record.Entry, dbKey, value []byte) error {
	if b.room < roomAll {
		return errFull
	}
	if !b.budget.claim(recordCost) {
		return errShare
	}
	b.set(dbKey, record.AppendEntry(value[:0], e))
	return nil
}

// adopt adds the record of an extent that is there already.
func (b *batch) adopt(e *record.Entry) error {
	if b.room < roomAll {
		return errFull
	}
	b.budget.claimAnyway(recordCost)
	dbKey := record.EntryKey(e.Key)
	b.set(dbKey[:], record.AppendEntry(make([]byte, 0, record.EntryBytes), e))
	return nil
}

// putInline adds the record of a payload that lies in the database, and that.
func (b *batch) putInline(e *record.Entry, dbKey, value, payloadKey, payload []byte) error {
	if b.room == roomAll && !b.budget.claim(held(int64(len(payload)), true)-recordCost) {
		return errShare
	}
	if err := b.put(e, dbKey, value); err != nil {
		return err
	}
	b.set(payloadKey, payload)
	return nil
}

// errFull says that the database's file system has no room for more.
var errFull = fmt.Errorf("disk: the database's file system is nearly full: %w", tier.ErrNoSpace)

// errShare says that the database has no room for more until Trim has made it.
var errShare = fmt.Errorf("disk: the database has its share of the capacity: %w", tier.ErrNoSpace)

// rewrite replaces a record; it keeps its number, which orders payloads.
func (b *batch) rewrite(e *record.Entry, dbKey []byte) {
	if b.room == roomAll && b.budget.claim(recordCost) {
		b.set(dbKey, record.AppendEntry(make([]byte, 0, record.EntryBytes), e))
	}
}

// set adds a key with its value as they are.
func (b *batch) set(dbKey, value []byte) {
	b.bytes += int64(len(dbKey) + len(value))
	b.wb.Set(dbKey, value)
}

// number says which commit this is; see witness.
func (b *batch) number(n uint64) {
	b.set(record.CommitsKey(), binary.LittleEndian.AppendUint64(nil, n))
}

// bury notes that k was deleted, under the number seq; see Tier.forget.
func (b *batch) bury(k key.Key, seq uint64) {
	dbKey := record.GraveKey(k)
	b.budget.claimAnyway(removalCost)
	b.set(dbKey[:], binary.LittleEndian.AppendUint64(nil, seq))
}

// unbury drops that note.
func (b *batch) unbury(k key.Key) {
	dbKey := record.GraveKey(k)
	b.budget.claimAnyway(removalCost)
	b.bytes += int64(len(dbKey))
	b.wb.Delete(dbKey[:])
}

// delete drops k's record, and its payload if that is inline.
func (b *batch) delete(k key.Key, inline bool) error {
	if b.room < roomDeletes {
		return fmt.Errorf("disk: the database's file system is full: %w", tier.ErrNoSpace)
	}
	b.budget.claimAnyway(removalCost)
	entry := record.EntryKey(k)
	b.bytes += int64(len(entry))
	b.wb.Delete(entry[:])
	if inline {
		payload := record.PayloadKey(k)
		b.bytes += int64(len(payload))
		b.wb.Delete(payload[:])
	}
	return nil
}
