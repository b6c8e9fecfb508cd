package trouble

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/test/faultfs"
	"github.com/kvstored/kvstored/key"
)

var eioRounds = flag.Int("eio-rounds", 6, "how often TestDatabaseEIO fails pages of the database; 200 for a long run")

const (
	eioPage = 4096
	eioSpan = 300 * time.Millisecond // until a fault that nobody has met is brought about by an opening; and how long trouble lasts at most
	// eioPatience is how long a fault waits then to be met.
	eioPatience = 2500 * time.Millisecond
	// eioAnswers bounds what takes moments.
	eioAnswers = time.Minute
)

// eioRun is one daemon whose disk fails.
type eioRun struct {
	d    *daemon.Daemon
	fs   *faultfs.FS
	dir  string // of the database
	rng  *rand.Rand
	hot  *key.Chain // pinned in DRAM
	kept *key.Chain // flushed, by the end of the round before
	n    uint64     // rounds
	s    *load.Book
	conn *client.Client
}

// Pages of the database's files cannot be read for a while, at any moment, in a
// compaction or an opening as well, or not be written: the daemon lives, DRAM
// answers, the tier is off and comes back, with everything that was flushed; no
// flush says that what could not be written was.
func TestDatabaseEIO(t *testing.T) {
	r := newEIORun(t)
	s := r.s
	const disk = 2 << 30
	var clients sync.WaitGroup
	for i := range 2 {
		clients.Go(func() { s.Store(t, r.d.Socket, rand.New(rand.NewPCG(uint64(i), 0))) })
	}
	files := map[string]int{}
	for range *eioRounds {
		round := r.round
		if r.rng.IntN(3) == 0 {
			round = r.roundOfWrites
		}
		files[round(t)]++
		if t.Failed() {
			break
		}
	}
	r.conn.Close()
	log := r.d.Said()
	failed := strings.Count(log, "the disk tier's database failed")
	t.Logf("%d rounds, met by files of: %v; the database failed %d times (%d lines name a SIGBUS), the tier was open again %d times, did not open %d times; the database was moved aside %d times",
		*eioRounds, files, failed, strings.Count(log, "SIGBUS"), strings.Count(log, "the disk tier is open"),
		strings.Count(log, "the disk tier cannot be opened"), strings.Count(log, "is moved aside"))
	if failed == 0 && !t.Failed() {
		t.Error("no fault ever ended the database: nothing was tried")
	}
	if strings.Contains(log, "is moved aside") {
		t.Error("what could not be read was taken for damage")
	}
	s.Lock()
	s.Age(disk)
	s.Unlock()
	r.d.Kill()
	clients.Wait()
	r.d.Start()
	s.Check(t, r.d.Socket, load.Every)
}

func newEIORun(t *testing.T) *eioRun {
	r := &eioRun{fs: faultfs.Mount(t), s: load.NewBook()}
	r.s.Trouble = true
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r.rng = rand.New(rand.NewPCG(seed, 0))
	disk := filepath.Join(r.fs.Dir, "disk")
	r.dir = filepath.Join(disk, "badger")
	r.d = daemon.Start(t, func(c *config.Config) {
		c.Admin.Listen = "127.0.0.1:0"
		c.Disk.Paths, c.Disk.Capacity = []string{disk}, 2<<30
	})
	var err error
	if r.conn, err = client.Dial(t.Context(), r.d.Socket, client.Options{Name: "eio", Space: &load.Space}); err != nil {
		t.Fatal(err)
	}
	r.hot = load.Chain(t, load.Space, 1<<40, 4)
	if err := load.Put(t.Context(), r.conn, r.hot); err != nil {
		t.Fatal(err)
	}
	// Pinned and not on disk it would be left of each flush once it was given up.
	if flushed, err := r.conn.Flush(t.Context(), true); err != nil || len(flushed.Left) > 0 {
		t.Fatalf("flush what is hot: %v, left %v", err, flushed.Left)
	}
	return r
}

// round fails a page, or all of a file, until the database has met it, and returns
// the kind of file if so.
func (r *eioRun) round(t *testing.T) string {
	t.Helper()
	r.pinHot(t)
	name, from, to := r.pick(t)
	if name == "" {
		return "none"
	}
	if err := r.fs.Fail(name, from, to); err != nil {
		t.Fatal(err)
	}
	met, restarted := 0, false
	calm := time.Now().Add(eioSpan)
	for end := calm.Add(eioPatience); met == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.readHot(t)
		r.readCold(t)
		if time.Now().After(calm) && !restarted { // an opening meets what nobody has
			restarted = true
			killDatabase(r.d)
		}
		var err error
		if met, err = r.fs.Met(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(eioSpan)))) // a while of trouble
	r.readHot(t)
	if err := r.fs.Heal(); err != nil {
		t.Fatal(err)
	}
	r.awaitWorks(t)
	r.keepPromise(t)
	if met == 0 {
		return "nobody"
	}
	when := "running"
	if restarted {
		when = "opening"
	}
	return strings.TrimLeft(name, "0123456789") + " " + when
}

// roundOfWrites fails writes to the database's files until one was
// met. What flushes have claimed meanwhile is there afterwards.
func (r *eioRun) roundOfWrites(t *testing.T) string {
	t.Helper()
	r.pinHot(t)
	pattern := []string{"*.mem", "*.sst", "MANIFEST"}[r.rng.IntN(3)]
	if err := r.fs.FailWrites(pattern); err != nil {
		t.Fatal(err)
	}
	var claimed []*key.Chain
	met := 0
	for end := time.Now().Add(eioPatience); met == 0 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.readHot(t)
		r.n++
		chain := load.Chain(t, load.Space, 1<<41+r.n, 6)
		if err := load.Put(t.Context(), r.conn, chain); err != nil {
			t.Fatalf("DRAM takes nothing: %v", err)
		}
		flushed, err := r.conn.Flush(t.Context(), true)
		if err == nil && len(flushed.Left) == 0 {
			claimed = append(claimed, chain)
		}
		if met, err = r.fs.Met(); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Duration(r.rng.Int64N(int64(eioSpan)))) // a while of trouble
	r.readHot(t)
	if err := r.fs.Heal(); err != nil {
		t.Fatal(err)
	}
	r.awaitWorks(t)
	for _, chain := range claimed {
		r.readAll(t, chain, client.WaitComplete)
	}
	r.keepPromise(t)
	if met == 0 {
		return "nobody"
	}
	return pattern + " written"
}

func (r *eioRun) pinHot(t *testing.T) {
	t.Helper()
	if _, err := r.conn.Pin(t.Context(), client.Chain(r.hot), "hot", 0); err != nil {
		t.Errorf("pin what is in DRAM: %v", err)
	}
}

// begun is how many chains were begun.
func (r *eioRun) begun() uint64 {
	r.s.Lock()
	defer r.s.Unlock()
	return r.s.Next
}

// keepPromise reads the chunks flushed in the round before, which have left DRAM
// since, and flushes something new.
func (r *eioRun) keepPromise(t *testing.T) {
	t.Helper()
	if r.kept != nil {
		r.readAll(t, r.kept, client.WaitComplete)
	}
	r.n++
	r.kept = load.Chain(t, load.Space, 1<<41+r.n, 6)
	for tries := 100; ; tries-- { // what was given up in the trouble is left of the next flushes
		if err := load.Put(t.Context(), r.conn, r.kept); err != nil {
			t.Fatal(err)
		}
		flushed, err := r.conn.Flush(t.Context(), true)
		if err == nil && len(flushed.Left) == 0 {
			return
		}
		if tries == 0 {
			t.Fatalf("flushes after the trouble: %v, left %v", err, flushed.Left)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// pick is a file of the database and bytes of it.
func (r *eioRun) pick(t *testing.T) (name string, from, to int64) {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.rng.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() == 0 || e.Name() == "LOCK" {
			continue // gone meanwhile
		}
		if r.rng.IntN(3) == 0 {
			return e.Name(), 0, 1 << 40
		}
		page := r.rng.Int64N((info.Size()+eioPage-1)/eioPage) * eioPage
		return e.Name(), page, page + eioPage
	}
	return "", 0, 0
}

// readHot reads the chunks in DRAM, as if nothing had happened.
func (r *eioRun) readHot(t *testing.T) { r.readAll(t, r.hot, client.BestEffort) }

// readAll reads a chain that is there to the last chunk.
func (r *eioRun) readAll(t *testing.T, chain *key.Chain, how client.WaitPolicy) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eioAnswers)
	defer cancel()
	job, err := r.conn.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{Policy: how})
	if err != nil {
		t.Fatalf("the daemon does not answer: %v", err)
	}
	st, err := job.Wait(ctx, client.All)
	if err != nil || int(st.Ready.Chunks) != chain.Len() {
		t.Fatalf("%d of %d chunks are ready (%v): %v", st.Ready.Chunks, chain.Len(), st.Reason, err)
	}
	buf := make([]byte, load.MaxSize)
	for i := range chain.Len() {
		n, err := job.Copy(ctx, buf, i)
		if err != nil || !load.Right(chain.Key(i), buf[:n]) {
			t.Fatalf("chunk %d: wrong bytes, or %v", i, err)
		}
	}
	if err := job.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// readCold asks for a few chains that are on disk only, if anything is.
func (r *eioRun) readCold(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eioAnswers)
	defer cancel()
	for range 10 {
		chain := load.Chain(t, load.Space, r.rng.Uint64N(r.begun()+1), 6)
		job, err := r.conn.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{Policy: client.WaitComplete})
		if err != nil {
			t.Fatalf("a prefetch fails: %v", err)
		}
		if _, err := job.Wait(ctx, client.All); err != nil {
			t.Fatalf("a prefetch fails: %v", err)
		}
		if err := job.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// killDatabase ends the database's process of a daemon, if there is one now.
func killDatabase(d *daemon.Daemon) {
	for _, pid := range d.Children() {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// awaitWorks waits until the tier is used again, and has been scanned where it
// was opened as at a start.
func (r *eioRun) awaitWorks(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := r.conn.Flush(t.Context(), true); err == nil {
			if st, err := r.d.Ask(t.Context()); err == nil && !st.Store.Tiers["disk"].Off && r.isScanned(t) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the tier does not come back")
		}
	}
}

// isScanned reports whether the last opening of the tier was followed by a scan; that at
// the daemon's start has no line of its own.
func (r *eioRun) isScanned(t *testing.T) bool {
	t.Helper()
	log := r.d.Said()
	return strings.LastIndex(log, "disk tier recovered") > strings.LastIndex(log, "the disk tier is open")
}
