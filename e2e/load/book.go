package load

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

const (
	// Flushed chunks must be there as long as less than this share of the
	// disk was stored or read since: then no eviction can have come to it. Far
	// behind that no check needs them.
	safeShare  = 0.6
	knownShare = 2
)

// Book is what clients have stored, and what of it must be there.
type Book struct {
	Trouble bool         // the disk may fail, and a flush with it
	working sync.RWMutex // each client holds it while it stores and flushes a chain
	sync.Mutex
	Next      uint64
	Moved     int64                 // bytes stored and read up to now
	Committed map[uint64]*key.Chain // perhaps there
	Flushed   map[uint64]*key.Chain // must be there
	whole     map[uint64]struct{}   // whose last chunk was committed
	when      map[uint64]int64      // Moved when it was begun
}

// NewBook returns an empty Book.
func NewBook() *Book {
	return &Book{
		Committed: make(map[uint64]*key.Chain), Flushed: make(map[uint64]*key.Chain), whole: make(map[uint64]struct{}),
		when: make(map[uint64]int64),
	}
}

// Age takes out what may have been evicted from a disk of so many bytes.
func (b *Book) Age(disk int64) {
	for number, when := range b.when {
		behind := float64(b.Moved-when) / float64(disk)
		if behind > safeShare {
			delete(b.Flushed, number)
		}
		if behind > knownShare {
			delete(b.Committed, number)
			delete(b.whole, number)
			delete(b.when, number)
		}
	}
}

// Store puts chains until the daemon is gone, flushing now and then.
func (b *Book) Store(t testing.TB, socket string, rng *rand.Rand) {
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "load", Space: &Space})
	if err != nil {
		return // killed already
	}
	defer c.Close()
	mine := make(map[uint64]*key.Chain)
	for {
		b.working.RLock()
		err := b.storeOne(t.Context(), t, c, rng, mine)
		b.working.RUnlock()
		if err != nil {
			b.gone(t, err)
			return
		}
	}
}

// storeOne puts a chain, and flushes now and then. mine is what its client has stored since
// its last flush.
func (b *Book) storeOne(ctx context.Context, t testing.TB, c *client.Client, rng *rand.Rand, mine map[uint64]*key.Chain) error {
	b.Lock()
	number := b.Next
	b.Next++
	b.Unlock()
	chain := Chain(t, Space, number, 1+rng.IntN(6))
	b.Lock()
	b.Committed[number] = chain
	b.Moved += Bytes(chain)
	b.when[number] = b.Moved
	b.Unlock()
	switch err := Put(ctx, c, chain); {
	case errors.Is(err, client.ErrNoSpace), errors.Is(err, client.ErrDeclined): // a small arena in pieces: the rest is not stored
	case err != nil:
		return err
	default:
		mine[number] = chain
		b.Lock()
		b.whole[number] = struct{}{}
		b.Unlock()
	}
	if rng.IntN(8) > 0 {
		return nil
	}
	durable := rng.IntN(4) == 0
	flushed, err := c.Flush(ctx, durable)
	if b.Trouble && (errors.Is(err, client.ErrTierOff) || errors.Is(err, client.ErrInternal)) {
		clear(mine) // nothing is promised
		return nil
	}
	if err != nil {
		return err
	}
	if b.Trouble && !durable && len(flushed.Left) == 0 {
		return nil // the device may not take it: only the next durable flush says
	}
	if len(flushed.Left) == 0 {
		b.Lock()
		maps.Copy(b.Flushed, mine)
		b.Unlock()
	}
	clear(mine)
	return nil
}

// Rest has the clients rest until the daemon has written all. Then the chains from first on
// that they were told are stored count as flushed.
func (b *Book) Rest(t testing.TB, d *daemon.Daemon, first uint64) {
	t.Helper()
	b.working.Lock()
	defer b.working.Unlock()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := d.Ask(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		disk := st.Store.Written["disk"]
		if disk.Waiting == 0 {
			if len(disk.Dropped) > 0 {
				t.Fatalf("chunks were not written: %+v", disk.Dropped)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d chunks wait to be written", disk.Waiting)
		}
	}
	b.Lock()
	defer b.Unlock()
	for number := range b.whole {
		if number >= first {
			b.Flushed[number] = b.Committed[number]
		}
	}
}

func (b *Book) gone(t testing.TB, err error) {
	if !errors.Is(err, client.ErrDisconnected) {
		t.Errorf("a client failed, though only its daemon was to die: %v", err)
	}
}

// Every picks all chains.
func Every(uint64) bool { return true }

// Check reads the chains that pick names and returns how many chunks of each
// are there. Each must be right; all that were flushed must be there.
func (b *Book) Check(t testing.TB, socket string, pick func(number uint64) bool) map[uint64]int {
	ctx := t.Context()
	c, err := client.Dial(ctx, socket, client.Options{Name: "check", Space: &Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, MaxSize)
	present, total := make(map[uint64]int), 0
	for number, chain := range b.Committed {
		if !pick(number) {
			continue
		}
		job, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{Policy: client.WaitComplete})
		if err != nil {
			t.Fatal(err)
		}
		st, err := job.Wait(ctx, client.All)
		if err != nil {
			t.Fatal(err)
		}
		if _, must := b.Flushed[number]; must && int(st.Ready.Chunks) != chain.Len() && st.Reason != client.StoppedNoSpace {
			t.Errorf("chain %d was flushed, and has %d of %d chunks (%v)", number, st.Ready.Chunks, chain.Len(), st.Reason)
		}
		for i := range int(st.Ready.Chunks) {
			n, err := job.Copy(ctx, buf, i)
			if err != nil {
				t.Fatal(err)
			}
			k := chain.Key(i)
			if !Right(k, buf[:n]) {
				t.Errorf("chain %d chunk %d: wrong bytes", number, i)
			}
			b.Moved += int64(n)
		}
		present[number] = int(st.Ready.Chunks)
		total += int(st.Ready.Chunks)
		if err := job.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d chains read of %d, %d of them flushed; %d chunks present and right", len(present), len(b.Committed), len(b.Flushed), total)
	return present
}

// Folder is the folder of a daemon that is small enough that DRAM and disk both evict,
// over two paths.
func Folder(t testing.TB, dram, disk int64, changes ...func(*config.Config)) *daemon.Daemon {
	t.Helper()
	small := func(c *config.Config) {
		c.CPU.Capacity, c.Disk.Capacity = config.Bytes(dram), config.Bytes(disk)
		c.Disk.Paths = append(c.Disk.Paths, filepath.Join(filepath.Dir(c.Disk.Paths[0]), "disk2"))
		c.Disk.Policy = "lru" // only by age can be told what it has not evicted
	}
	return daemon.Folder(t, append([]func(*config.Config){small}, changes...)...)
}
