package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/key"
)

var crashRounds = flag.Int("crash-rounds", 14, "how often TestCrash kills the daemon; 500 for a long run")

const (
	crashClients = 3
	crashSpan    = 400 * time.Millisecond // a round lasts up to this long
	crashMinSize = 3 << 10                // some payloads lie in the database
	crashMaxSize = 250 << 10

	// In each so-manieth round the clients rest until nothing waits to be written:
	// all that they were told is stored must be on disk, though no client flushed it.
	crashRestRound = 7

	// Flushed chunks must be there as long as less than this share of the
	// disk was stored or read since: then no eviction can have come to it. Far
	// behind that no check needs them.
	crashSafeShare  = 0.6
	crashKnownShare = 2
)

// chainOf is a chain that no other number makes.
func chainOf(t *testing.T, sp key.Space, number uint64, chunks int) *key.Chain {
	t.Helper()
	b, err := key.NewBuilder(sp)
	if err != nil {
		t.Fatal(err)
	}
	var raw []byte
	lengths := make([]uint32, chunks)
	for i := range chunks {
		raw = binary.LittleEndian.AppendUint64(raw, number+1)
		raw = binary.LittleEndian.AppendUint64(raw, uint64(i+1))
		lengths[i] = uint32(sp.ChunkTokens)
	}
	chain := new(key.Chain)
	if err := b.Hashes(chain, 16, raw, lengths, key.Options{}); err != nil {
		t.Fatal(err)
	}
	return chain
}

// sizeOf is the payload size of a chunk, derived from its key.
func sizeOf(k key.Key) uint32 {
	n := binary.LittleEndian.Uint64(k.Hash[:])*31 + binary.LittleEndian.Uint64(k.Hash[8:])
	return crashMinSize + uint32(n*2654435761%(crashMaxSize-crashMinSize))
}

// crashSpace is the space of the crash test.
var crashSpace = key.Space{Model: "crash", World: 1, DType: "none", ChunkTokens: 16, Method: "given:crash"}

// stored is what the clients of a crash test know.
type stored struct {
	trouble bool         // the disk may fail, and a flush with it
	working sync.RWMutex // each client holds it while it stores and flushes a chain
	sync.Mutex
	next      uint64
	moved     int64                 // bytes stored and read up to now
	committed map[uint64]*key.Chain // perhaps there
	flushed   map[uint64]*key.Chain // must be there
	whole     map[uint64]struct{}   // whose last chunk was committed
	when      map[uint64]int64      // moved when it was begun
}

func newStored() *stored {
	return &stored{
		committed: make(map[uint64]*key.Chain), flushed: make(map[uint64]*key.Chain), whole: make(map[uint64]struct{}),
		when: make(map[uint64]int64),
	}
}

// age takes out what may have been evicted from a disk of so many bytes.
func (s *stored) age(disk int64) {
	for number, when := range s.when {
		behind := float64(s.moved-when) / float64(disk)
		if behind > crashSafeShare {
			delete(s.flushed, number)
		}
		if behind > crashKnownShare {
			delete(s.committed, number)
			delete(s.whole, number)
			delete(s.when, number)
		}
	}
}

// bytesOf is what the payloads of a chain take.
func bytesOf(chain *key.Chain) (n int64) {
	for i := range chain.Len() {
		n += int64(sizeOf(chain.Key(i)))
	}
	return n
}

// store puts chains until the daemon is gone, flushing now and then.
func (s *stored) store(t *testing.T, socket string, rng *rand.Rand) {
	c, err := client.Dial(t.Context(), socket, client.Options{Name: "crash", Space: &crashSpace})
	if err != nil {
		return // killed already
	}
	defer c.Close()
	mine := make(map[uint64]*key.Chain)
	for {
		s.working.RLock()
		err := s.storeOne(t.Context(), t, c, rng, mine)
		s.working.RUnlock()
		if err != nil {
			s.gone(t, err)
			return
		}
	}
}

// storeOne puts a chain, and flushes now and then. mine is what its client has stored since
// its last flush.
func (s *stored) storeOne(ctx context.Context, t *testing.T, c *client.Client, rng *rand.Rand, mine map[uint64]*key.Chain) error {
	s.Lock()
	number := s.next
	s.next++
	s.Unlock()
	chain := chainOf(t, crashSpace, number, 1+rng.IntN(6))
	s.Lock()
	s.committed[number] = chain
	s.moved += bytesOf(chain)
	s.when[number] = s.moved
	s.Unlock()
	switch err := storeChain(ctx, c, chain); {
	case errors.Is(err, client.ErrNoSpace), errors.Is(err, client.ErrDeclined): // a small arena in pieces: the rest is not stored
	case err != nil:
		return err
	default:
		mine[number] = chain
		s.Lock()
		s.whole[number] = struct{}{}
		s.Unlock()
	}
	if rng.IntN(8) > 0 {
		return nil
	}
	durable := rng.IntN(4) == 0
	flushed, err := c.Flush(ctx, durable)
	if s.trouble && (errors.Is(err, client.ErrTierOff) || errors.Is(err, client.ErrInternal)) {
		clear(mine) // nothing is promised
		return nil
	}
	if err != nil {
		return err
	}
	if s.trouble && !durable && len(flushed.Left) == 0 {
		return nil // the device may not take it: only the next durable flush says
	}
	if len(flushed.Left) == 0 {
		s.Lock()
		maps.Copy(s.flushed, mine)
		s.Unlock()
	}
	clear(mine)
	return nil
}

// rest has the clients rest until the daemon has written all. Then the chains from first on
// that they were told are stored count as flushed.
func (s *stored) rest(t *testing.T, d *demoDaemon, first uint64) {
	t.Helper()
	s.working.Lock()
	defer s.working.Unlock()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Millisecond) {
		st, err := d.stats(t.Context())
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
	s.Lock()
	defer s.Unlock()
	for number := range s.whole {
		if number >= first {
			s.flushed[number] = s.committed[number]
		}
	}
}

func (s *stored) gone(t *testing.T, err error) {
	if !errors.Is(err, client.ErrDisconnected) {
		t.Errorf("a client failed, though only its daemon was to die: %v", err)
	}
}

func storeChain(ctx context.Context, c *client.Client, chain *key.Chain) error {
	sizes := make([]uint32, chain.Len())
	for i := range sizes {
		sizes[i] = sizeOf(chain.Key(i))
	}
	for first := 0; first < chain.Len(); {
		f, err := c.Reserve(ctx, client.Chain(chain), client.ReserveOptions{First: first, Sizes: sizes[first:], Wait: 10 * time.Second})
		if err != nil {
			return err
		}
		for i := range f.Len() {
			if f.Status(i) == client.Granted {
				replay.Fill(f.Bytes(i), chain.Key(first+i))
			}
		}
		if _, err := f.Commit(ctx); err != nil {
			return err
		}
		first += f.Len()
	}
	return nil
}

// every picks all chains.
func every(uint64) bool { return true }

// check reads the chains that pick names and returns how many chunks of each
// are there. Each must be right; all that were flushed must be there.
func (s *stored) check(t *testing.T, socket string, pick func(number uint64) bool) map[uint64]int {
	ctx := t.Context()
	c, err := client.Dial(ctx, socket, client.Options{Name: "check", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, crashMaxSize)
	present, total := make(map[uint64]int), 0
	for number, chain := range s.committed {
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
		if _, must := s.flushed[number]; must && int(st.Ready.Chunks) != chain.Len() && st.Reason != client.StoppedNoSpace {
			t.Errorf("chain %d was flushed, and has %d of %d chunks (%v)", number, st.Ready.Chunks, chain.Len(), st.Reason)
		}
		for i := range int(st.Ready.Chunks) {
			n, err := job.Copy(ctx, buf, i)
			if err != nil {
				t.Fatal(err)
			}
			k := chain.Key(i)
			if n != int(sizeOf(k)) || replay.Verify(buf[:n], k) >= 0 {
				t.Errorf("chain %d chunk %d: wrong bytes", number, i)
			}
			s.moved += int64(n)
		}
		present[number] = int(st.Ready.Chunks)
		total += int(st.Ready.Chunks)
		if err := job.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d chains read of %d, %d of them flushed; %d chunks present and right", len(present), len(s.committed), len(s.flushed), total)
	return present
}

// crashDaemon is a daemon small enough that DRAM and disk both evict, over two
// paths.
func crashDaemon(t *testing.T, dram, disk int64, change ...func(*config.Config)) *demoDaemon {
	t.Helper()
	d := daemonFolder(t)
	dir := filepath.Dir(d.config)
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = d.socket, ""
	cfg.CPU.Capacity = config.Bytes(dram)
	cfg.Disk.Paths = []string{filepath.Join(dir, "disk"), filepath.Join(dir, "disk2")}
	cfg.Disk.Capacity, cfg.Disk.SegmentSize, cfg.Disk.MinFree = config.Bytes(disk), 64<<20, 0
	cfg.Disk.Policy = "lru" // only by age can be told what it has not evicted
	for _, do := range change {
		do(&cfg)
	}
	configure(t, d, &cfg)
	t.Cleanup(d.kill)
	return d
}

// At every moment of a kill, every chunk is absent or exact
// afterwards, and what a flush had acknowledged is there.
func TestCrash(t *testing.T) {
	const disk = 4 << 30
	d := crashDaemon(t, 64<<20, disk)
	s := newStored()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var first uint64 // chain of the last round
	for round := range *crashRounds {
		var records recount
		if round > 0 {
			records = recountRecords(t, filepath.Join(filepath.Dir(d.socket), "disk"))
		}
		st, err := d.start(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// A disk above its watermark is trimmed at once.
		got := st.Store.Tiers["disk"]
		if round > 0 && (got.Entries+int64(got.Evictions) != records.entries || got.Evictions == 0 && got.UsedBytes != records.extentBytes) {
			t.Errorf("round %d: the daemon counts %d entries and %d bytes, and %d evictions; there were %+v", round, got.Entries, got.UsedBytes, got.Evictions, records)
		}
		s.age(disk)
		s.check(t, d.socket, func(n uint64) bool { return n >= first || rng.IntN(10) == 0 })
		first = s.next
		var clients sync.WaitGroup
		for i := range crashClients {
			r := rand.New(rand.NewPCG(seed, uint64(round*crashClients+i+1)))
			clients.Go(func() { s.store(t, d.socket, r) })
		}
		if round%crashRestRound == crashRestRound-1 {
			time.Sleep(crashSpan)
			s.rest(t, d, first)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(crashSpan)))) // the moment of the crash, not a wait for anything
		d.kill()
		clients.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.age(disk)
	s.check(t, d.socket, every)
	if len(s.flushed) == 0 {
		t.Error("nothing was ever flushed: the rounds are too short to prove anything")
	}
}

// A daemon told to stop writes every unwritten chunk, with any number of clients at work.
func TestStopFlushes(t *testing.T) {
	d := crashDaemon(t, 64<<20, 1<<30)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Name: "stop", Space: &crashSpace})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := newStored()
	for n := range uint64(40) {
		chain := chainOf(t, crashSpace, n, 3)
		if err := storeChain(t.Context(), c, chain); err != nil {
			t.Fatal(err)
		}
		s.committed[n], s.flushed[n] = chain, chain
	}
	if err := d.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(d.socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.check(t, d.socket, every)
}

// A second daemon must not take over the socket or the disk of a live one.
func TestSecondDaemon(t *testing.T) {
	d := crashDaemon(t, 64<<20, 1<<30)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := kvstored(t, "", "serve", "--config", d.config)
	if code != exitFailure {
		t.Errorf("a second daemon ended with %d: %s", code, stderr)
	}
	if _, err := d.stats(t.Context()); err != nil {
		t.Errorf("the first daemon is gone: %v", err)
	}
}

// traceFile is the real trace, where it is at hand.
func traceFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "traces", "conversation_trace.jsonl")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the conversation trace is not here: %v", err)
	}
	return path
}

var traceRequests = flag.Int("trace-requests", 400, "how many requests TestTrace plays; 0 = all, which takes 12 GB of disk and a minute")

// Played through the socket by one client, every prompt hits exactly the chunks
// stored before it: nothing is lost, nothing is wrong.
func TestTrace(t *testing.T) {
	path := traceFile(t)
	want := hitsWithoutLoss(t, path, *traceRequests)
	d := crashDaemon(t, 512<<20, 20<<30)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, clients := range []int{1, 8} {
		if clients > 1 && *traceRequests == 0 {
			continue // a second run would find everything there
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r, err := replay.Run(t.Context(), replay.Options{
			Socket: d.socket, Trace: f, Name: path, BlockTokens: 512, Limit: *traceRequests, Concurrency: clients,
			PayloadBytes: 64 << 10, SaveUnfull: true, Policy: client.WaitComplete,
		})
		if err != nil {
			t.Fatal(err)
		}
		if r.Mismatches != 0 || r.DiffersBlocks != 0 {
			t.Errorf("%d clients: %d mismatches, %d differing", clients, r.Mismatches, r.DiffersBlocks)
		}
		if clients == 1 && r.TotalHitTokens != want {
			t.Errorf("%d hit tokens; want exactly %d", r.TotalHitTokens, want)
		}
		if clients == 8 && r.TotalHitTokens < want {
			t.Errorf("8 clients: %d hit tokens the second time; want at least %d", r.TotalHitTokens, want)
		}
		if !r.DaemonAgrees() {
			t.Errorf("%d clients: the daemon counted otherwise: %+v", clients, r.Daemon)
		}
		t.Logf("%d clients: %d tokens hit of %d", clients, r.TotalHitTokens, r.TotalPromptTokens)
	}
}

// hitsWithoutLoss is what a cache that never loses anything hits.
func hitsWithoutLoss(t *testing.T, path string, limit int) int64 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	seen := make(map[uint64]bool)
	total, n := int64(0), 0
	for req, err := range replay.Requests(f, path, 512) {
		if err != nil {
			t.Fatal(err)
		}
		if limit > 0 && n == limit {
			break
		}
		n++
		k := 0
		for k < len(req.BlockIDs) && seen[req.BlockIDs[k]] {
			k++
		}
		total += int64(min(k*512, req.InputTokens))
		for _, id := range req.BlockIDs {
			seen[id] = true
		}
	}
	return total
}
