package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/replay"
	"github.com/kvstored/kvstored/internal/s3test"
	"github.com/kvstored/kvstored/key"
)

// agedChunks is how long the prompts of these tests are.
const agedChunks = 6

// ages are what these tests know of a store.
type ages struct {
	t      *testing.T
	chains map[string]*key.Chain
}

func newAges(t *testing.T, names ...string) *ages {
	a := &ages{t: t, chains: make(map[string]*key.Chain)}
	for i, name := range names {
		a.chains[name] = chainOf(t, crashSpace, uint64(1000+i), agedChunks)
	}
	return a
}

// store stores a prompt that may become so old.
func (a *ages) store(socket, name string, maxAge time.Duration) {
	a.t.Helper()
	c, err := client.Dial(a.t.Context(), socket, client.Options{Space: &crashSpace})
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	chain := a.chains[name]
	f, err := c.Reserve(a.t.Context(), client.Chain(chain), client.ReserveOptions{Size: 20_000, Count: agedChunks, MaxAge: maxAge})
	if err != nil || f.Len() != agedChunks {
		a.t.Fatal(f.Len(), err)
	}
	for i := range f.Len() {
		replay.Fill(f.Bytes(i), chain.Key(i))
	}
	if _, err := f.Commit(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
}

// found is how many chunks of a prompt a daemon gives when it has the time to read them, all of
// them right.
func (a *ages) found(socket, name string) int {
	a.t.Helper()
	c, err := client.Dial(a.t.Context(), socket, client.Options{Inline: true, Space: &crashSpace})
	if err != nil {
		a.t.Fatal(err)
	}
	defer c.Close()
	chain := a.chains[name]
	got, err := c.Get(a.t.Context(), client.Chain(chain), client.GetOptions{Deadline: time.Minute})
	if err != nil {
		a.t.Fatal(err)
	}
	want := make([]byte, 20_000)
	for i := range got {
		if replay.Fill(want, chain.Key(i)); string(got[i].Bytes) != string(want) {
			a.t.Errorf("%s: chunk %d has wrong bytes", name, i)
		}
	}
	m, err := c.Lookup(a.t.Context(), client.Chain(chain), 0)
	if err != nil || int(m.Total.Chunks) > len(got) {
		a.t.Errorf("%s: %d chunks are found, and %d read: %v", name, m.Total.Chunks, len(got), err)
	}
	return len(got)
}

// until waits for something, and says what did not come to pass.
func (a *ages) until(what string, is func() bool) {
	a.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatal(what)
		}
	}
}

// before does steps with a largest age that is not over when they end, however long they
// take on this machine: where it is, it does them again, with one twice as long. It
// returns when what the steps have stored is over.
func (a *ages) before(steps func(age time.Duration)) (over time.Time) {
	for age := 5 * time.Second; ; age *= 2 {
		began := time.Now()
		steps(age)
		ended := time.Now()
		if ended.Before(began.Add(age - time.Second)) { // ages are whole seconds
			return ended.Add(age)
		}
		a.t.Logf("the steps before chunks are over took %v, more than their age allows: again", ended.Sub(began))
	}
}

// TestMaxAgeOutlivesAKill: a daemon that is killed and started again keeps to the ages of
// chunks on disk, also where the index is made anew: chunks that became too old meanwhile
// are not found, and leave the disk.
func TestMaxAgeOutlivesAKill(t *testing.T) {
	t.Parallel()
	a := newAges(t, "stays", "an hour", "seconds")
	var d *demoDaemon
	atOnce := 0
	over := a.before(func(age time.Duration) {
		d = startDaemonWith(t, func(*config.Config) {})
		a.store(d.socket, "stays", 0)
		a.store(d.socket, "an hour", time.Hour)
		a.store(d.socket, "seconds", age)
		flush(t, d.socket)
		atOnce = a.found(d.socket, "seconds")
		d.kill()
	})
	if atOnce != agedChunks {
		t.Fatalf("%d chunks at once", atOnce)
	}
	for _, lost := range []bool{false, true} {
		d.kill()
		if lost {
			loseIndex(t, d)
		}
		time.Sleep(time.Until(over))
		if _, err := d.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		a.until("the disk is not scanned", func() bool {
			st, err := d.stats(t.Context())
			return err == nil && !st.Store.Recovering
		})
		for name, want := range map[string]int{"stays": agedChunks, "an hour": agedChunks, "seconds": 0} {
			if n := a.found(d.socket, name); n != want {
				t.Errorf("index lost: %t: %s: %d chunks, want %d", lost, name, n, want)
			}
		}
		a.until("what is over does not leave the disk", func() bool {
			st, err := d.stats(t.Context())
			return err == nil && st.Store.Tiers["disk"].Entries == 2*agedChunks && st.Store.Aged == agedChunks
		})
	}
}

// loseIndex removes the database of a daemon that does not run.
func loseIndex(t *testing.T, d *demoDaemon) {
	t.Helper()
	cfg, err := config.Load(d.config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cfg.Disk.MetaPath(), "badger", "MANIFEST"), []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestMaxAgeIsShared: what one host stores with a bound, another that finds it in the
// bucket does not give any longer, and neither does one that begins only then.
func TestMaxAgeIsShared(t *testing.T) {
	s3 := s3test.Run(t)
	a := newAges(t, "stays", "seconds")
	one := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	var two *demoDaemon
	a.store(one.socket, "stays", 0)
	seconds := 0
	over := a.before(func(age time.Duration) {
		a.chains["seconds"] = chainOf(t, crashSpace, uint64(age), agedChunks) // none that the bucket has
		a.store(one.socket, "seconds", age)
		flush(t, one.socket)
		two = sharing(t, remoteDaemon(t, s3.Endpoint, nil))
		seconds = a.found(two.socket, "seconds")
	})
	if stays := a.found(two.socket, "stays"); stays != agedChunks || seconds != agedChunks {
		t.Errorf("%d and %d chunks reach the other host", stays, seconds)
	}
	one.kill()
	time.Sleep(time.Until(over))
	three := sharing(t, remoteDaemon(t, s3.Endpoint, nil))
	for name, d := range map[string]*demoDaemon{"the other host": two, "a new host": three} {
		if n := a.found(d.socket, "seconds"); n > 0 {
			t.Errorf("%s: %d chunks that are over", name, n)
		}
		if n := a.found(d.socket, "stays"); n != agedChunks {
			t.Errorf("%s: %d chunks of the others", name, n)
		}
	}
	a.until("the other host removes nothing", func() bool {
		st, err := two.stats(t.Context())
		return err == nil && st.Store.AgedOut >= agedChunks
	})
}
