package disk

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Where the database may not even delete, a deletion fails and waits: nothing
// waits for it, the end least of all.
func TestDeleteWithoutRoom(t *testing.T) {
	o := testOptions(t.TempDir())
	m := newMemory(t)
	d, stop := start(t, o, nil)
	mustPut(t, d, m, 1, 100_000)
	mustPut(t, d, m, 2, 100_000)
	stop()

	d, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	d.db.floor = math.MaxInt64 // as if the file system were full
	ran := make(chan error, 1)
	go func() { ran <- d.Run(context.Background()) }()
	recoverAll(t, d)
	wantErr(t, d.Delete(context.Background(), []key.Key{keyOf(1)}), tier.ErrNoSpace)
	wantErr(t, put(t, d, m, 3, 100_000), tier.ErrNoSpace)
	mustGet(t, d, m, 2, 100_000)
	ended := make(chan error, 1)
	go func() { ended <- d.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the tier does not close")
	}
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// stubborn is a deletion that the database has no room for yet.
type stubborn struct {
	c       *committer
	free    atomic.Bool
	refused chan struct{} // capacity 1: it waits to be tried again
	done    chan struct{}
}

func newStubborn(c *committer) *stubborn {
	return &stubborn{c: c, refused: make(chan struct{}, 1), done: make(chan struct{})}
}

func (s *stubborn) apply(*batch) error {
	if !s.free.Load() {
		return tier.ErrNoSpace
	}
	return nil
}

func (s *stubborn) committed(err error) {
	if err == nil {
		close(s.done)
		return
	}
	s.c.again(s)
	select {
	case s.refused <- struct{}{}:
	default:
	}
}

// What could not be committed is made up for once it can, though nothing else
// is to be committed.
func TestCommitAgain(t *testing.T) {
	d, _ := start(t, testOptions(t.TempDir()), nil)
	s := newStubborn(d.commits)
	if err := d.commits.add(s); err != nil {
		t.Fatal(err)
	}
	<-s.refused
	s.free.Store(true)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		t.Fatal("it was never tried again")
	}
}

// Nor does it keep the committer busy until then: a commit of nothing but that
// says that it got nowhere.
func TestCommitRefused(t *testing.T) {
	d, err := Open(testOptions(t.TempDir())) // without Run only the test commits
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close() //nolint:errcheck
	c, s := d.commits, newStubborn(d.commits)
	commit := func(want bool) {
		t.Helper()
		if got := c.commit(c.take(false)); got != want {
			t.Errorf("a commit says that there may be more to do: %t, want %t", got, want)
		}
	}
	for range 3 {
		if err := c.add(s); err != nil {
			t.Fatal(err)
		}
		commit(false)
		if n := c.queued(); n != 1 {
			t.Fatalf("%d changes wait to be tried again, want the one", n)
		}
		c.take(false)
	}
	s.free.Store(true)
	if err := c.add(s); err != nil {
		t.Fatal(err)
	}
	commit(true)
	<-s.done
	commit(false) // of nothing
}
