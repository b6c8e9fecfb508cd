package history

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
	"github.com/kvstored/kvstored/key"
)

var (
	historyFor = flag.Duration("history", 8*time.Second, "how long each run of TestHistory goes on")
	historyOps = flag.Int64("ops", 0, "operations of the workers that end TestHistory; 0: none do")
	workers    = flag.Int("workers", 4, "clients that do something all the time")
	seed       = flag.Uint64("seed", 0, "of all that is random; 0: of the time")
	told       conditions // by the flags of configurations
)

func init() {
	for _, c := range configurations {
		flag.BoolVar(c.on(&told), c.name, false, c.what)
	}
}

// bugFor is in how long a seeded bug must be found.
const bugFor = 5 * time.Minute

func TestMain(m *testing.M) {
	if job := os.Getenv(childVar); job != "" {
		_ = child(context.Background(), job) // ends with its daemon, if it is not killed
		return
	}
	os.Exit(m.Run())
}

func testOptions(t *testing.T) options {
	t.Helper()
	o := options{seed: *seed, workers: *workers}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", o.seed)
	return o
}

// No promise is broken by the faults that the run injects into the daemon and its clients:
// as the flags tell, or else in no configuration and in each that is always tried.
func TestHistory(t *testing.T) {
	if told != (conditions{}) {
		keepsPromises(t, told)
		return
	}
	t.Run("plain", func(t *testing.T) { keepsPromises(t, told) })
	for _, c := range configurations {
		if c.always {
			var in conditions
			*c.on(&in) = true
			t.Run(c.name, func(t *testing.T) { keepsPromises(t, in) })
		}
	}
}

func keepsPromises(t *testing.T, in conditions) {
	o := testOptions(t)
	o.conditions = in
	o.span, o.ops = *historyFor, *historyOps
	if o.ops > 0 {
		o.span = 0
	}
	r := newRun(t, o)
	broken, err := r.play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	kinds := make(map[promise]int)
	for _, v := range broken {
		if kinds[v.promise]++; kinds[v.promise] <= 3 {
			t.Errorf("%s: %s", v.promise, v.text)
		}
	}
	n := r.history.counts()
	t.Logf("%d operations, %d lives, %+v, violations %v", r.ops.Load(), r.lives, n, kinds)
	if n.Reads == 0 || n.Musts == 0 || n.Deleted == 0 || n.Compared == 0 || n.Asked == 0 || r.lives < 2 {
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

func (s grantsAgain) Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, by means) ([]client.Stored, error) {
	results, err := s.store.Put(ctx, p, first, payloads, by)
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

// givesUp flushes, and says that some chunk could not be written.
type givesUp struct{ store }

func (s givesUp) Flush(ctx context.Context, durable bool) (bool, error) {
	_, err := s.store.Flush(ctx, durable)
	return false, err
}

// swaps stores the bytes of two chunks the wrong way round.
type swaps struct{ store }

func (s swaps) Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, by means) ([]client.Stored, error) {
	payloads = slices.Clone(payloads)
	slices.Reverse(payloads)
	return s.store.Put(ctx, p, first, payloads, by)
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
	through := setup{mode: "through", policies: [2]string{"lru", "lru"}}
	full := through // chunks wait in DRAM
	full.mode, full.disk = "auto", 64<<20
	for name, tc := range map[string]struct {
		wrap  func(store) store
		setup setup
		want  []promise
	}{
		"a delete that skips the disk":        {func(s store) store { return skipsDisk{s} }, through, []promise{undeleted, unflushed}},
		"a release that always says ok":       {func(s store) store { return alwaysOK{s} }, through, []promise{leaseBroken, wrongBytes}},
		"a commit of what is there already":   {func(s store) store { return grantsAgain{s} }, through, []promise{twoValues}},
		"a flush that writes nothing":         {func(s store) store { return flushesNothing{s} }, full, []promise{unflushed}},
		"a flush that gives chunks up":        {func(s store) store { return givesUp{s} }, through, []promise{givenUp}},
		"payloads under each other's keys":    {func(s store) store { return swaps{s} }, through, []promise{wrongBytes}},
		"a cache that nobody tells to forget": {caches(), through, []promise{undeleted, twoValues}},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t)
			o.span, o.first, o.wrap, o.setup = bugFor, true, tc.wrap, &tc.setup
			begun := time.Now()
			r := newRun(t, o)
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
