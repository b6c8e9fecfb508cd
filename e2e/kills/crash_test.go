package kills

import (
	"errors"
	"flag"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/e2e/records"
)

var crashRounds = flag.Int("crash-rounds", 8, "how often TestCrash kills the daemon; 500 for a long run")

const (
	crashClients = 3
	crashSpan    = 400 * time.Millisecond // a round lasts up to this long

	// In each so-manieth round the clients rest until nothing waits to be written:
	// all that they were told is stored must be on disk, though no client flushed it.
	crashRestRound = 7
)

// At every moment of a kill, every chunk is absent or exact
// afterwards, and what a flush had acknowledged is there.
func TestCrash(t *testing.T) {
	t.Run("roomy", func(t *testing.T) {
		t.Parallel()
		crash(t, 4<<30, *crashRounds, true)
	})
	t.Run("full", func(t *testing.T) { // it evicts all the time
		t.Parallel()
		crash(t, 192<<20, *crashRounds/2, false)
	})
}

func crash(t *testing.T, disk int64, rounds int, rest bool) {
	d := load.Folder(t, 64<<20, disk)
	s := load.NewBook()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var first uint64 // chain of the last round
	for round := range rounds {
		var left records.Sum
		if round > 0 {
			left = records.Count(t, d.Disk)
			if n := occupied(t, d); n > disk {
				t.Errorf("round %d: %d bytes on disk", round, n)
			}
		}
		st := d.Start()
		// A disk above its watermark is trimmed at once.
		got := st.Store.Tiers["disk"]
		if round > 0 && (got.Entries+int64(got.Evictions) != left.Entries || got.Evictions == 0 && got.UsedBytes != left.ExtentBytes) {
			t.Errorf("round %d: the daemon counts %d entries and %d bytes, and %d evictions; there were %+v", round, got.Entries, got.UsedBytes, got.Evictions, left)
		}
		if got.Corrupt > 0 || got.Counters["recover_lost"] > 0 {
			t.Errorf("round %d: %+v", round, got)
		}
		s.Age(disk)
		s.Check(t, d.Socket, func(n uint64) bool { return n >= first || rng.IntN(10) == 0 })
		first = s.Next
		var clients sync.WaitGroup
		for i := range crashClients {
			r := rand.New(rand.NewPCG(seed, uint64(round*crashClients+i+1)))
			clients.Go(func() { s.Store(t, d.Socket, r) })
		}
		if rest && round%crashRestRound == crashRestRound-1 {
			time.Sleep(crashSpan)
			s.Rest(t, d, first)
		}
		time.Sleep(time.Duration(rng.Int64N(int64(crashSpan)))) // the moment of the crash, not a wait for anything
		d.Kill()
		clients.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	d.Start()
	s.Age(disk)
	s.Check(t, d.Socket, load.Every)
	if len(s.Flushed) == 0 {
		t.Error("nothing was ever flushed: the rounds are too short to prove anything")
	}
}

// occupied is what the folders of the disk take on their file system.
func occupied(t *testing.T, d *daemon.Daemon) (total int64) {
	t.Helper()
	for _, folder := range []string{d.Disk, d.Disk + "2"} {
		err := filepath.WalkDir(folder, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if info, err := e.Info(); err == nil { // else the database's process has removed it at its end
				total += info.Sys().(*syscall.Stat_t).Blocks * 512
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return total
}

// A daemon told to stop writes every unwritten chunk, with any number of clients at work.
func TestStopFlushes(t *testing.T) {
	d := load.Folder(t, 64<<20, 1<<30)
	d.Start()
	c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "stop", Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := load.NewBook()
	for n := range uint64(40) {
		chain := load.Chain(t, load.Space, n, 3)
		if err := load.Put(t.Context(), c, chain); err != nil {
			t.Fatal(err)
		}
		s.Committed[n], s.Flushed[n] = chain, chain
	}
	d.Stop()
	if _, err := os.Lstat(d.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	d.Start()
	s.Check(t, d.Socket, load.Every)
}

// A second daemon must not take over the socket or the disk of a live one.
func TestSecondDaemon(t *testing.T) {
	d := load.Folder(t, 64<<20, 1<<30)
	d.Start()
	code, _, stderr := daemon.Run(t, "", "serve", "--config", d.Config)
	if code != 1 {
		t.Errorf("a second daemon ended with %d: %s", code, stderr)
	}
	if _, err := d.Ask(t.Context()); err != nil {
		t.Errorf("the first daemon is gone: %v", err)
	}
}
