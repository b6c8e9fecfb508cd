package ages_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
)

const (
	chunks     = 6 // of the prompts of these tests
	chunkBytes = 20_000
)

// ages are what these tests know of a store.
type ages struct {
	t      *testing.T
	chains map[string]*key.Chain
}

func newAges(t *testing.T, names ...string) *ages {
	a := &ages{t: t, chains: make(map[string]*key.Chain)}
	for i, name := range names {
		a.chains[name] = load.Chain(t, load.Space, uint64(1000+i), chunks)
	}
	return a
}

// store stores a prompt that may become so old.
func (a *ages) store(d *daemon.Daemon, name string, maxAge time.Duration) {
	a.t.Helper()
	c := d.Dial(client.Options{Space: &load.Space})
	defer c.Close()
	chain := a.chains[name]
	f, err := c.Reserve(a.t.Context(), client.Chain(chain), client.ReserveOptions{Size: chunkBytes, Count: chunks, MaxAge: maxAge})
	if err != nil || f.Len() != chunks {
		a.t.Fatal(f.Len(), err)
	}
	for i := range f.Len() {
		load.Fill(f.Bytes(i), chain.Key(i))
	}
	if _, err := f.Commit(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// storeAll stores what stays, what has an hour, and what is over after an age, on disk.
func (a *ages) storeAll(d *daemon.Daemon, age time.Duration) {
	a.t.Helper()
	a.store(d, "stays", 0)
	a.store(d, "an hour", time.Hour)
	a.store(d, "seconds", age)
	d.Flush()
}

// found is how many chunks of a prompt a daemon gives when it has the time to read them, all
// of them right.
func (a *ages) found(d *daemon.Daemon, name string) int {
	a.t.Helper()
	c := d.Dial(client.Options{Inline: true, Space: &load.Space})
	defer c.Close()
	chain := a.chains[name]
	got, err := c.Get(a.t.Context(), client.Chain(chain), client.GetOptions{Deadline: time.Minute})
	if err != nil {
		a.t.Fatal(err)
	}
	for i := range got {
		if len(got[i].Bytes) != chunkBytes || !load.Filled(got[i].Bytes, chain.Key(i)) {
			a.t.Errorf("%s: chunk %d has wrong bytes", name, i)
		}
	}
	m, err := c.Lookup(a.t.Context(), client.Chain(chain), 0)
	if err != nil || int(m.Total.Chunks) > len(got) {
		a.t.Errorf("%s: %d chunks are found, and %d read: %v", name, m.Total.Chunks, len(got), err)
	}
	return len(got)
}

// wantOver: what was to be over is not found, and all else is.
func (a *ages) wantOver(d *daemon.Daemon, when string) {
	a.t.Helper()
	for name, want := range map[string]int{"stays": chunks, "an hour": chunks, "seconds": 0} {
		if n := a.found(d, name); n != want {
			a.t.Errorf("%s: %s: %d chunks, want %d", when, name, n, want)
		}
	}
}

// stats is what of the statistics tells of ages.
type stats struct {
	Store struct {
		Tiers   map[string]daemon.Tier `json:"tiers"`
		Aged    int64                  `json:"chunks_with_age"`
		AgedOut int64                  `json:"chunks_aged_out"`
	} `json:"store"`
}

// until waits for something, and says what did not come to pass.
func (a *ages) until(d *daemon.Daemon, what string, is func(*stats) bool) {
	a.t.Helper()
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		var st stats
		if err := d.AskInto(a.t.Context(), &st); err != nil {
			a.t.Fatal(err)
		}
		if is(&st) {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s: %+v", what, st)
		}
	}
}

// before does steps with a largest age that is not over when they end, however long they
// take on this machine: where it is, it does them again, with one twice as long. It
// returns when what the steps have stored is over.
func (a *ages) before(steps func(age time.Duration)) (over time.Time) {
	for age := 4 * time.Second; ; age *= 2 {
		began := time.Now()
		steps(age)
		ended := time.Now()
		if ended.Before(began.Add(age - time.Second)) { // ages are whole seconds
			return ended.Add(age)
		}
		a.t.Logf("the steps before chunks are over took %v, more than their age allows: again", ended.Sub(began))
	}
}

// TestOutlivesAKill: a daemon that is killed and started again keeps to the ages of chunks
// on disk, also where the index is made anew: chunks that became too old meanwhile are not
// found, and leave the disk.
func TestOutlivesAKill(t *testing.T) {
	t.Parallel()
	a := newAges(t, "stays", "an hour", "seconds")
	var d *daemon.Daemon
	atOnce := 0
	over := a.before(func(age time.Duration) {
		d = daemon.Start(t)
		a.storeAll(d, age)
		atOnce = a.found(d, "seconds")
		d.Kill()
	})
	if atOnce != chunks {
		t.Fatalf("%d chunks at once", atOnce)
	}
	for _, when := range []string{"with the index", "without"} {
		d.Kill()
		if when == "without" {
			if err := os.WriteFile(filepath.Join(d.Disk, "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Until(over))
		d.Start()
		a.wantOver(d, when)
		a.until(d, "what is over does not leave the disk", func(st *stats) bool {
			return st.Store.Tiers["disk"].Entries == 2*chunks && st.Store.Aged == chunks
		})
	}
}

// TestOutlivesAKeptRestart: a daemon that finds DRAM again keeps to the ages of chunks that
// the one before has stored.
func TestOutlivesAKeptRestart(t *testing.T) {
	t.Parallel()
	a := newAges(t, "stays", "an hour", "seconds")
	var d *daemon.Daemon
	over := a.before(func(age time.Duration) {
		d = daemon.Folder(t, func(c *config.Config) { c.CPU.Keep = true })
		d.Keep()
		d.Start()
		a.storeAll(d, age)
		d.Stop()
		d.Start()
	})
	time.Sleep(time.Until(over))
	a.wantOver(d, "after the restart")
	a.until(d, "what is over is not removed", func(st *stats) bool { return st.Store.Aged == chunks })
}

// TestIsShared: what one host stores with a bound, another that finds it in the bucket does
// not give any longer, and neither does one that begins only then.
func TestIsShared(t *testing.T) {
	s3 := s3test.Run(t)
	a := newAges(t, "stays", "seconds")
	host := func() *daemon.Daemon {
		d := daemon.Start(t, func(c *config.Config) {
			c.Remote.S3.Bucket, c.Remote.S3.Endpoint, c.Remote.S3.PathStyle = s3test.Bucket, s3.Endpoint, true
		})
		a.until(d, "the store is not reached", func(st *stats) bool { return !st.Store.Tiers["remote"].Off })
		return d
	}
	one := host()
	a.store(one, "stays", 0)
	var two *daemon.Daemon
	seconds := 0
	over := a.before(func(age time.Duration) {
		a.chains["seconds"] = load.Chain(t, load.Space, uint64(age), chunks) // none that the bucket has
		a.store(one, "seconds", age)
		one.Flush()
		two = host()
		seconds = a.found(two, "seconds")
	})
	if stays := a.found(two, "stays"); stays != chunks || seconds != chunks {
		t.Errorf("%d and %d chunks reach the other host", stays, seconds)
	}
	one.Kill()
	time.Sleep(time.Until(over))
	for name, d := range map[string]*daemon.Daemon{"the other host": two, "a new host": host()} {
		if n := a.found(d, "seconds"); n > 0 {
			t.Errorf("%s: %d chunks that are over", name, n)
		}
		if n := a.found(d, "stays"); n != chunks {
			t.Errorf("%s: %d chunks of the others", name, n)
		}
	}
	a.until(two, "the other host removes nothing", func(st *stats) bool { return st.Store.AgedOut >= chunks })
}
