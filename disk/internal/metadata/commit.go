package metadata

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Change is something to write to the database.
type Change interface {
	// Apply adds it to the batch. After an error it is not part of it.
	Apply(b *Batch) error
	// Committed gets the result, once for each try: the error of apply or of
	// the commit, or nil. No lock is held.
	Committed(err error)
}

// Committer groups changes: one goroutine commits the changes that were queued while
// the commit before was under way, at most maxChanges at a time. Changes reach
// the database in the order in which they were added.
type Committer struct {
	store   *Store
	budget  Budget
	commits atomic.Uint64
	bytes   atomic.Int64 // keys and values
	moved   atomic.Uint64
	mu      struct {
		sync.Mutex
		queue   []Change
		stopped bool
	}
	wake  chan struct{}
	First uint64 // sequence numbers of earlier processes are below it; not to be changed
}

// Budget is what the database may take of the capacity and of its file system.
type Budget interface {
	// Claim sets n bytes aside for a record, if there is room for them.
	Claim(n int64) bool
	// ClaimAnyway sets n bytes aside for a deletion, or for what lies there already.
	ClaimAnyway(n int64)
	// Settle ends the claims of a commit: the database holds so many bytes now;
	// 0 where that is not known.
	Settle(held int64)
	// Tight reports that deletions may come to need more than is left to them,
	// and that a compaction would help.
	Tight() bool
	// Compacted notes what a compaction has left.
	Compacted(measure func() (held int64, err error)) error
	// Room looks how much may be written.
	Room() Room
}

// ErrUncertain says that a change may be in the database, or come to be there,
// although its commit failed.
var ErrUncertain = errors.New("not all of it was written")

// maxChanges in one commit keeps its latency down.
const maxChanges = 4096

// retryEvery is how often changes that could not be committed are tried again
// while no new one is queued.
const retryEvery = time.Second

// compactTick is how often a compaction that commits wait for counts as progress.
const compactTick = 100 * time.Millisecond

// NewCommitter is that of an epoch, whose numbers are higher than all before.
func NewCommitter(s *Store, b Budget, epoch uint64) *Committer {
	return &Committer{store: s, budget: b, wake: make(chan struct{}, 1), First: epoch << folders.EpochShift}
}

// Add queues a change.
func (c *Committer) Add(ch Change) error {
	return c.AddWith(func() Change { return ch })
}

// AddWith queues the change that make returns, unless that is nil. No other
// change is queued while make runs: a removal takes its keys out of the ledger
// there, so that a later Put of a key is committed after its deletion. make may
// lock the ledger, and does no I/O.
func (c *Committer) AddWith(make func() Change) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.stopped {
		return tier.ErrClosed
	}
	if ch := make(); ch != nil {
		c.mu.queue = append(c.mu.queue, ch)
		base.Poke(c.wake)
	}
	return nil
}

// Requeue queues a change whose commit failed, to go with the next one, or when
// run tries again.
func (c *Committer) Requeue(ch Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.queue = append([]Change{ch}, c.mu.queue...)
}

// Run commits until ctx ends, and then the changes that are still queued.
func (c *Committer) Run(ctx context.Context) error {
	retry := time.NewTicker(retryEvery)
	defer retry.Stop()
	for {
		select {
		case <-c.wake:
		case <-retry.C:
		case <-ctx.Done():
			for part := range slices.Chunk(c.take(true), maxChanges) {
				c.commit(part)
			}
			return nil
		}
		for c.commit(c.take(false)) {
		}
	}
}

// take returns the next changes; the last ones, all of them, when it stops.
func (c *Committer) take(stop bool) []Change {
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
func (c *Committer) commit(changes []Change) bool {
	if len(changes) == 0 {
		return false
	}
	err := c.store.try()
	if err != nil {
		c.moved.Add(1)
		for _, ch := range changes {
			ch.Committed(err)
		}
		return false
	}
	db := c.store.db
	if c.budget.Tight() {
		c.compact(db)
	}
	b := &Batch{wb: db.Batch(), room: c.budget.Room(), budget: c.budget}
	refused := make([]error, len(changes))
	applied := len(changes)
	for i, ch := range changes {
		if refused[i] = ch.Apply(b); refused[i] != nil {
			applied--
		}
	}
	last, _ := c.store.witness.last()
	b.Set(database.CommitsKey(), binary.LittleEndian.AppendUint64(nil, last+1)) // see witness
	if err = b.wb.Flush(); err != nil {
		c.budget.Settle(0)
		err = fmt.Errorf("disk: commit of %d changes: %w: %w", applied, ErrUncertain, err)
		c.store.failed(err)
	} else {
		c.budget.Settle(db.HeldBytes())
		c.store.witness.saw(last+1, b.Inline)
	}
	c.commits.Add(1)
	c.bytes.Add(b.bytes)
	c.moved.Add(1)
	for i, ch := range changes {
		ch.Committed(cmp.Or(refused[i], err))
	}
	return err == nil && applied > 0
}

// compact has the database drop deleted records before the next deletions. That
// counts as progress to a change that waits for its commit meanwhile. Where it
// fails over the process, so does the commit that follows.
func (c *Committer) compact(db *database.DB) {
	done := make(chan error, 1)
	go func() { done <- db.Compact() }() // ends with the process, at the latest
	for {
		select {
		case err := <-done:
			if err == nil {
				_ = c.budget.Compacted(db.Measure) // without it there is one more
			}
			return
		case <-time.After(compactTick):
			c.moved.Add(1)
		}
	}
}

// Stop takes no more changes, and returns those that are queued.
func (c *Committer) Stop() []Change { return c.take(true) }

// Still calls look while no change is queued.
func (c *Committer) Still(look func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	look()
}

// Progress grows while commits, or a compaction that they wait for, go on.
func (c *Committer) Progress() uint64 { return c.moved.Load() }

// Counts is how many commits there were, and the bytes of their keys and values.
func (c *Committer) Counts() (commits uint64, bytes int64) { return c.commits.Load(), c.bytes.Load() }

// Queued is how many changes wait.
func (c *Committer) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.queue)
}

// Batch collects the writes of one commit. It keeps nothing that it is given.
type Batch struct {
	wb     *database.Batch
	room   Room
	budget Budget
	bytes  int64
	Inline int32                     // payloads that it brings to the database, less those that it deletes
	value  [database.EntryBytes]byte // of the record that is being added
}

// Room is how much room the database's file system has. Badger maps its
// files: a page that finds no block there would end the process.
type Room uint8

// The answers: deletions take little, and free some.
const (
	RoomNone    Room = iota // not even deletions are committed
	RoomDeletes             // deletions are
	RoomAll                 // everything is
)

// Put adds a record, and the payload of one that is inline.
func (b *Batch) Put(e *database.Entry, payload []byte) error {
	if b.room < RoomAll {
		return errFull
	}
	if !b.budget.Claim(HeldBytes(int64(e.Size), e.Inline)) {
		return ErrBudget
	}
	b.record(e)
	if e.Inline {
		dbKey := database.PayloadKey(e.Key)
		b.Set(dbKey[:], payload)
		b.Inline++
	}
	return nil
}

// Adopt adds the record of an extent that is there already.
func (b *Batch) Adopt(e *database.Entry) error {
	if b.room < RoomAll {
		return errFull
	}
	b.budget.ClaimAnyway(recordCost)
	b.record(e)
	return nil
}

// errFull says that the database's file system has no room for more.
var errFull = fmt.Errorf("disk: the database's file system is nearly full: %w", tier.ErrNoSpace)

// ErrBudget says that the database has no room for more until Trim has made it.
var ErrBudget = fmt.Errorf("disk: the database has its share of the capacity: %w", tier.ErrNoSpace)

// Rewrite replaces a record; it keeps its number, which orders payloads.
func (b *Batch) Rewrite(e *database.Entry) {
	if b.room == RoomAll && b.budget.Claim(recordCost) {
		b.record(e)
	}
}

func (b *Batch) record(e *database.Entry) {
	dbKey := database.EntryKey(e.Key)
	b.Set(dbKey[:], database.AppendEntry(b.value[:0], e))
}

// Set adds a key with its value as they are.
func (b *Batch) Set(dbKey, value []byte) {
	b.bytes += int64(len(dbKey) + len(value))
	b.wb.Set(dbKey, value)
}

// Delete drops k's record, and its payload if that is inline.
func (b *Batch) Delete(k key.Key, inline bool) error {
	if b.room < RoomDeletes {
		return fmt.Errorf("disk: the database's file system is full: %w", tier.ErrNoSpace)
	}
	b.budget.ClaimAnyway(removalCost)
	entry := database.EntryKey(k)
	b.bytes += int64(len(entry))
	b.wb.Delete(entry[:])
	if inline {
		payload := database.PayloadKey(k)
		b.bytes += int64(len(payload))
		b.wb.Delete(payload[:])
	}
	return nil
}

// Bytes that the database holds for an entry in its tables, with keys, filters
// and the index of blocks: measured after a compaction, to about a tenth.
const (
	recordCost  = 130 // of the record
	payloadCost = 40  // of a payload in the database, beside its bytes and a block's
	blockCost   = 128 // of a payload that fills a block of 4 KiB, at most
)

// removalCost is how many bytes a commit adds for each key that it deletes, until
// a compaction drops the deletion and the deleted record.
const removalCost = 80

// HeldBytes is how many bytes the database holds for a payload of n bytes.
func HeldBytes(n int64, inline bool) int64 {
	if inline {
		return recordCost + payloadCost + n + min(n/32, blockCost)
	}
	return recordCost
}
