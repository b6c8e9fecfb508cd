package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/database/databasetest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const mib = 1 << 20

// memory is an Allocator that never waits.
type memory struct{ *arena.Arena }

func (m memory) Alloc(_ context.Context, n int) (arena.Block, error) {
	b, err := m.Arena.Alloc(n)
	if errors.Is(err, arena.ErrFull) {
		err = tier.ErrNoSpace
	}
	return b, err
}

func newMemory(t testing.TB) memory {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: 64 * mib})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return memory{a}
}

func testOptions(dir string) Options {
	return Options{
		Paths: []string{dir}, CapacityBytes: 64 * mib, MetaReserveBytes: 16 * mib, SegmentBytes: 8 * mib, Policy: "lru",
		InlineMax: 512, IOTimeout: 10 * time.Second, IODepth: 2, Database: databasetest.Open, Log: zerolog.Nop(),
	}
}

// folderAt is dir, open until the test ends.
func folderAt(t testing.TB, dir string) *folders.Folder {
	t.Helper()
	f, err := folders.OpenFolder(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// rig is a tier and the one instance of it, which is not opened again when it ends.
type rig struct {
	*Tier
	*instance
}

func openRig(o Options, kinds ...blockio.Folder) (*rig, error) {
	o.kinds = kinds
	i, err := open(o)
	if err != nil {
		return nil, err
	}
	t, err := newTier(i.o)
	if err != nil {
		return nil, err
	}
	t.install(opened{instance: i})
	return &rig{t, i}, nil
}

func (r *rig) Run(ctx context.Context) error { return r.run(ctx) }

func (r *rig) Close() error {
	r.Tier.mu.Lock()
	r.Tier.mu.closed = true
	r.Tier.mu.Unlock()
	return r.close()
}

// start opens a tier and runs it until the test or stop ends it.
func start(t testing.TB, o Options, f blockio.Folder) (d *rig, stop func()) {
	t.Helper()
	d, err := openRig(o, f)
	if err != nil {
		t.Fatal(err)
	}
	return d, runTier(t, d)
}

// runTier runs d until the test or stop ends it.
func runTier(t testing.TB, d *rig) (stop func()) {
	t.Helper()
	ran := make(chan error, 1)
	go func() { ran <- d.Run(context.Background()) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		broken := d.db.Works() != nil // by a test
		if err := d.Close(); err != nil && !broken {
			t.Errorf("close: %v", err)
		}
		if err := <-ran; err != nil && !broken && !errors.Is(err, tier.ErrClosed) {
			t.Errorf("run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func recoverAll(t testing.TB, d *rig) map[key.Key]tier.Record {
	t.Helper()
	got := make(map[key.Key]tier.Record)
	err := d.Recover(context.Background(), func(rs []tier.Record) {
		for _, r := range rs {
			got[r.Key] = r
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func keyOf(n int) key.Key {
	var k key.Key
	k.Space[0] = 7
	binary.LittleEndian.PutUint64(k.Hash[:], uint64(n)+1)
	return k
}

// noise is what payloads are taken from.
var noise = sync.OnceValue(func() []byte {
	b := make([]byte, 5*mib)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
})

// fill writes the payload of key n, whose bytes depend on n alone.
func fill(p []byte, n int) {
	from := noise()[n*67%mib:]
	for left := p; len(left) > 0; {
		left = left[copy(left, from):]
	}
	var number [4]byte
	binary.LittleEndian.PutUint32(number[:], uint32(n))
	copy(p, number[:])
}

func entryOf(t testing.TB, m memory, n, size int) tier.Entry {
	t.Helper()
	b, err := m.Alloc(context.Background(), size)
	if err != nil {
		t.Fatal(err)
	}
	fill(b.Bytes(), n)
	sum := b.Seal()
	return tier.Entry{Record: tier.Record{Key: keyOf(n), Tokens: 256, Size: uint32(size), Sum: sum}, Block: b}
}

func put(t testing.TB, d tier.Tier, m memory, n, size int) error {
	t.Helper()
	e := entryOf(t, m, n, size)
	defer e.Block.Release()
	return d.Put(context.Background(), e)
}

func mustPut(t testing.TB, d tier.Tier, m memory, n, size int) {
	t.Helper()
	if err := put(t, d, m, n, size); err != nil {
		t.Fatalf("put %d: %v", n, err)
	}
}

// get reads key n and checks every byte.
func get(t testing.TB, d tier.Tier, m memory, n, size int) error {
	t.Helper()
	b, err := d.Get(context.Background(), keyOf(n), m)
	if err != nil {
		return err
	}
	defer b.Release()
	want := make([]byte, size)
	fill(want, n)
	if string(b.Bytes()) != string(want) {
		t.Fatalf("key %d: wrong bytes", n)
	}
	if !b.Verify() || b.Refs() != 1 {
		t.Fatalf("key %d: sealed %t, %d references", n, b.Sealed(), b.Refs())
	}
	return nil
}

func mustGet(t testing.TB, d tier.Tier, m memory, n, size int) {
	t.Helper()
	if err := get(t, d, m, n, size); err != nil {
		t.Fatalf("get %d: %v", n, err)
	}
}

// entryIn is the record of key n.
func entryIn(t testing.TB, d *rig, n int) (e database.Entry) {
	t.Helper()
	if found, err := d.db.Entry(keyOf(n), &e); err != nil || !found {
		t.Fatalf("key %d has a record: %t, %v", n, found, err)
	}
	return e
}

func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got %v, want %v", err, want)
	}
}

// occupied is what the directory takes on its file system.
func occupied(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil {
			if info, err := e.Info(); err == nil {
				total += folders.AllocatedBytes(info)
			}
		}
		return nil
	})
	return total
}

// checkBooks compares the ledger with the allocators.
func checkBooks(t testing.TB, d *rig) {
	t.Helper()
	// An entry that was read corrupt, or evicted in the background, leaves its
	// extent when its deletion is in the database, which no call waits for.
	err := booksError(d)
	for deadline := time.Now().Add(time.Minute); err != nil && time.Now().Before(deadline); err = booksError(d) {
		time.Sleep(awaitEvery)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func booksError(d *rig) error {
	used := d.segments.usage().used
	l, inDatabase := d.ledger.Stats(), filesWorth*d.budget.live.Load()
	if known := l.UsedBytes - inDatabase; used > known+int64(l.Entries)*database.HeaderBytes || known-used > int64(l.Entries)*alignBytes {
		return fmt.Errorf("extents take %d bytes, the ledger knows of %d in %d entries, %d of them in the database", used, l.UsedBytes, l.Entries, inDatabase)
	}
	d.segments.mu.Lock()
	defer d.segments.mu.Unlock()
	if len(d.segments.mu.readers) != 0 || len(d.segments.mu.freeing) != 0 {
		return fmt.Errorf("%d readers, %d extents being freed, and no read under way", len(d.segments.mu.readers), len(d.segments.mu.freeing))
	}
	d.deleting.Lock()
	defer d.deleting.Unlock()
	if n := len(d.deleting.keys); n != 0 {
		return fmt.Errorf("%d keys are still to be deleted, and nobody is at it", n)
	}
	return nil
}

// recount reads every record and compares with the books: each entry of the
// ledger has one record and each record an entry, extents lie within their
// segments, none is owned twice, and together they are the bytes in use.
func recount(t testing.TB, d *rig) {
	t.Helper()
	checkBooks(t, d)
	var entries []database.Entry
	err := d.db.Scan(context.Background(), func(k, v []byte) error {
		var e database.Entry
		if err := database.DecodeEntry(&e, k, v); err != nil {
			return err
		}
		entries = append(entries, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := int(d.Stats().Entries); len(entries) != n {
		t.Fatalf("%d records for %d entries", len(entries), n)
	}
	var used, live, occupies int64
	for _, e := range entries {
		used += int64(e.Extent.Bytes)
		live += metadata.HeldBytes(int64(e.Size), e.Inline)
		occupies += int64(e.Extent.Bytes) + filesWorth*metadata.HeldBytes(int64(e.Size), e.Inline)
		if known, _ := d.ledger.Find(e.Key); known.Value != valueOf(&e) || known.Size != e.Size {
			t.Fatalf("the ledger has %+v of record %+v", known, e)
		}
	}
	if got := d.budget.live.Load(); got != live {
		t.Fatalf("the database is said to hold %d bytes for entries, the records come to %d", got, live)
	}
	if got := d.ledger.Stats().UsedBytes; got != occupies {
		t.Fatalf("the ledger says that %d bytes are occupied, the records %d", got, occupies)
	}
	kept, lost := resolve(entries, func(n uint32) int64 {
		d.segments.mu.Lock()
		defer d.segments.mu.Unlock()
		if g := d.segments.find(n); g != nil {
			return g.size
		}
		return 0
	})
	if len(lost) > 0 {
		t.Fatalf("%d of %d extents are owned twice or lie nowhere", len(lost), len(lost)+len(kept))
	}
	if taken := d.segments.usage().used; taken != used {
		t.Fatalf("records name %d bytes, %d are in use", used, taken)
	}
}

func segmentFiles(t testing.TB, dir string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, folders.SegmentPrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// writes is a change of a test's own.
type writes struct {
	fn   func(b *metadata.Batch)
	done chan error
}

func (w *writes) Apply(b *metadata.Batch) error {
	w.fn(b)
	return nil
}

func (w *writes) Committed(err error) { w.done <- err }

// write commits what fn writes.
func write(t testing.TB, d *rig, fn func(b *metadata.Batch)) {
	t.Helper()
	w := &writes{fn, make(chan error, 1)}
	if err := d.commits.Add(w); err != nil {
		t.Fatal(err)
	}
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
}

// endProcess ends the process of the database, as a kill does; the database is known to
// be broken from then on.
func endProcess(t testing.TB, d *instance) {
	t.Helper()
	d.db.Kill(&database.Death{How: "signal: killed"})
	if _, err := d.db.Measure(); err == nil {
		t.Error("a database without a process answers")
	}
}

// gate is the pulse of a database whose file system may refuse writes.
type gate struct {
	*os.File
	mu   sync.Mutex
	fail error // of every write
}

func newGate(t testing.TB) *gate {
	t.Helper()
	f, err := os.Create(filepath.Join(tiertest.Folder(t), "pulse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return &gate{File: f}
}

// refuse has every write fail with err.
func (g *gate) refuse(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.fail = err
}

func (g *gate) WriteAt(p []byte, off int64) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return 0, g.fail
	}
	return g.File.WriteAt(p, off)
}

// awaitEvery is how often it is looked for what must come.
const awaitEvery = 10 * time.Millisecond

func await(t *testing.T, otherwise string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(awaitEvery) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}
