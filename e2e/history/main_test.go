package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
	"github.com/kvstored/kvstored/key"
)

var historyFor = flag.Duration("history", 20*time.Second, "how long TestHistory goes on")

// bugFor is in how long a seeded bug must be found.
const bugFor = 5 * time.Minute

func TestMain(m *testing.M) {
	if job := os.Getenv(childVar); job != "" {
		_ = child(context.Background(), job)
		return
	}
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// built is the daemon of this tree, once for all tests.
var built struct {
	sync.Once
	dir, binary string
	err         error
}

func testOptions(t *testing.T) options {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "kvstored-consistency-"); built.err == nil {
			built.binary, built.err = measure.Program(t.Context(), "", built.dir)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	dir, err := os.MkdirTemp("", "kvc-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemon's folder stays in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return options{binary: built.binary, dir: dir, seed: seed, workers: 4, log: t.Logf}
}

// No promise is broken by the faults that the run injects into the daemon and
// its clients.
func TestHistory(t *testing.T) {
	o := testOptions(t)
	o.span = *historyFor
	r := newRun(o)
	broken, err := r.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range broken[:min(len(broken), 5)] {
		t.Errorf("%s: %s", v.promise, v.text)
	}
	n := r.history.counts()
	t.Logf("%d operations, %d lives, %+v, %d violations", r.ops.Load(), r.lives, n, len(broken))
	if n.Reads == 0 || n.Musts == 0 || n.Deleted == 0 || r.lives < 2 {
		t.Errorf("%+v in %d lives prove nothing", n, r.lives)
	}
}

// skipsDisk deletes in DRAM only, of which it drops all: also chunks that a flush was about
// to write.
type skipsDisk struct{ store }

func (s skipsDisk) Delete(ctx context.Context, _ []key.Hash) error {
	return s.Empty(ctx)
}

// alwaysOK says of every lease that it held.
type alwaysOK struct{ store }

type okLease struct{ lease }

func (s alwaysOK) Lease(ctx context.Context, p client.Prompt) (lease, error) {
	l, err := s.store.Lease(ctx, p)
	return okLease{l}, err
}

func (l okLease) Release(ctx context.Context) error { return connection(l.lease.Release(ctx)) }

// grantsAgain says of chunks that exist already that it stored them.
type grantsAgain struct{ store }

func (s grantsAgain) Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, inline bool) ([]client.Stored, error) {
	results, err := s.store.Put(ctx, p, first, payloads, inline)
	for i, r := range results {
		if r.Code == client.ResultExists || r.Code == client.ResultDiffers {
			results[i].Code = client.ResultStored
		}
	}
	return results, err
}

// flushesNothing says that everything is written.
type flushesNothing struct{ store }

func (s flushesNothing) Flush(context.Context, bool) (bool, error) { return true, nil }

// swaps stores the bytes of two chunks the wrong way round.
type swaps struct{ store }

func (s swaps) Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, inline bool) ([]client.Stored, error) {
	payloads = slices.Clone(payloads)
	slices.Reverse(payloads)
	return s.store.Put(ctx, p, first, payloads, inline)
}

// remembers serves a payload again that it has served before.
type remembers struct {
	store
	mu   *sync.Mutex
	seen map[string][]byte
}

func (s remembers) Get(ctx context.Context, p client.Prompt, first int) ([][]byte, error) {
	chunks, err := s.store.Get(ctx, p, first)
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, b := range chunks {
		k, _, _ := parse(b)
		name := fmt.Sprint(k)
		if old, ok := s.seen[name]; ok {
			chunks[i] = old
		}
		s.seen[name] = chunks[i]
	}
	return chunks, err
}

// The checker finds bugs, each of its kind.
func TestSeededBugs(t *testing.T) {
	through := setup{mode: "through", puts: "staged", policies: [2]string{"lru", "lru"}, unwritten: 0.4, lease: leaseAge}
	back := through
	back.mode = "back"
	for name, tc := range map[string]struct {
		wrap  func(store) store
		setup setup
		want  []promise
	}{
		"a delete that skips the disk":        {func(s store) store { return skipsDisk{s} }, through, []promise{undeleted, unflushed}},
		"a release that always says ok":       {func(s store) store { return alwaysOK{s} }, through, []promise{leaseBroken, wrongBytes}},
		"a commit of what is there already":   {func(s store) store { return grantsAgain{s} }, through, []promise{twoValues}},
		"a flush that writes nothing":         {func(s store) store { return flushesNothing{s} }, back, []promise{unflushed}},
		"payloads under each other's keys":    {func(s store) store { return swaps{s} }, through, []promise{wrongBytes}},
		"a cache that nobody tells to forget": {caches(), through, []promise{undeleted, twoValues}},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			o.span, o.first, o.wrap, o.setup = bugFor, true, tc.wrap, &tc.setup
			begun := time.Now()
			r := newRun(o)
			broken, err := r.play(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(broken) == 0 {
				t.Fatalf("not found in %v and %d operations", bugFor, r.ops.Load())
			}
			if !slices.Contains(tc.want, broken[0].promise) {
				t.Errorf("found as %q: %s", broken[0].promise, broken[0].text)
			}
			t.Logf("found in %v and %d operations: %s", time.Since(begun).Round(time.Millisecond), r.ops.Load(), broken[0].promise)
		})
	}
}

func caches() func(store) store {
	mu, seen := new(sync.Mutex), make(map[string][]byte)
	return func(s store) store { return remembers{s, mu, seen} }
}
