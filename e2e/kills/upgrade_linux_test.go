package kills

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/key"
)

var (
	handOvers = flag.Int("hand-overs", 3, "how often TestHandOvers hands a daemon over; 50 for a long run")
	otherProg = flag.String("other-program", "", "an older kvstored, with which TestHandOvers alternates")
	badHeirs  = flag.Int("bad-successors", 6, "how many successors TestSuccessorDies ends; 200 for a long run")
)

const (
	handOverClients = 4
	handOverChains  = 300              // of 1 to 6 chunks, 38 MB for each 100: all of it fits into DRAM
	handOverMost    = 10 * time.Second // that a request may take
)

// handOverDaemon is one that can hand over, with room in DRAM for all that is stored.
func handOverDaemon(t *testing.T, disk config.Bytes) *daemon.Daemon {
	t.Helper()
	d := daemon.Folder(t, func(c *config.Config) {
		c.Admin.Listen = "127.0.0.1:0"
		c.CPU.Capacity = 512 << 20
		c.Upgrade.HandOver = true
		c.Disk.Capacity = disk
	})
	if *otherProg != "" { // it does not know the keys that came later
		text := fmt.Sprintf("listen: {socket: %s}\nadmin: {listen: 127.0.0.1:0}\ncpu: {capacity: 512MiB}\nupgrade: {hand_over: true}\n"+
			"disk: {paths: [%s], capacity: %d, segment_size: 64MiB, min_free: 0}\n", d.Socket, d.Disk, disk)
		if err := os.WriteFile(d.Config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// traffic is what clients store and read while daemons come and go.
type traffic struct {
	socket string
	kills  bool // daemons may be killed, and away for a moment
	mu     struct {
		sync.Mutex
		begun   uint64
		most    uint64       // that begun may come to
		chains  []*key.Chain // stored and acknowledged
		at      []time.Time  // when
		gaps    []time.Duration
		answers int
	}
}

func newTraffic(d *daemon.Daemon) *traffic {
	tr := &traffic{socket: d.Socket}
	tr.mu.most = handOverChains
	return tr
}

// run stores and reads until ctx ends. Whenever the connection ends it makes another one.
func (tr *traffic) run(ctx context.Context, t *testing.T, rng *rand.Rand) {
	var c *client.Client
	var lost time.Time
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	for ctx.Err() == nil {
		begun := time.Now()
		err := error(nil)
		if c == nil {
			c, err = client.Dial(t.Context(), tr.socket, client.Options{Name: "traffic", Space: &load.Space})
			if gone := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist); gone && tr.kills {
				time.Sleep(time.Millisecond)
				continue
			} else if gone {
				t.Errorf("a connect was refused: %v", err)
				return
			}
		}
		if err == nil {
			err = tr.one(t, c, rng)
		}
		if took := time.Since(begun); took > handOverMost+time.Second {
			t.Errorf("a request took %v", took)
		}
		switch {
		case err == nil:
			tr.answered(lost)
			lost = time.Time{}
		case errors.Is(err, client.ErrDisconnected), errors.Is(err, client.ErrStopping): // both say: connect again
			if lost.IsZero() {
				lost = begun
			}
			if c != nil {
				c.Close()
				c = nil
			}
		default:
			t.Errorf("a client failed: %v", err)
			return
		}
	}
}

// answered notes a request that was answered, and since when none was.
func (tr *traffic) answered(lost time.Time) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.mu.answers++
	if !lost.IsZero() {
		tr.mu.gaps = append(tr.mu.gaps, time.Since(lost))
	}
}

// one stores or reads a chain.
func (tr *traffic) one(t *testing.T, c *client.Client, rng *rand.Rand) error {
	ctx, cancel := context.WithTimeout(t.Context(), handOverMost)
	defer cancel()
	tr.mu.Lock()
	number, known := tr.mu.begun, len(tr.mu.chains)
	var chain *key.Chain
	if number < tr.mu.most && (known == 0 || rng.IntN(4) == 0) {
		tr.mu.begun++
	} else {
		chain = tr.mu.chains[rng.IntN(known)]
	}
	tr.mu.Unlock()
	if chain != nil {
		_, err := readRight(ctx, t, c, chain)
		return err
	}
	chain = load.Chain(t, load.Space, number, 1+int(number%6))
	if err := load.Put(ctx, c, chain); err != nil {
		return err
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.mu.chains = append(tr.mu.chains, chain)
	tr.mu.at = append(tr.mu.at, time.Now())
	return nil
}

// readRight reads the chunks of a chain that are in DRAM. Each byte must be right where the
// lease held until the end.
func readRight(ctx context.Context, t *testing.T, c *client.Client, chain *key.Chain) (chunks int, err error) {
	job, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{Policy: client.BestEffort})
	if err != nil {
		return 0, err
	}
	st, err := job.Wait(ctx, client.All)
	if err != nil {
		return 0, err
	}
	wrong := -1
	buf := make([]byte, load.MaxSize)
	for i := range int(st.Ready.Chunks) {
		n, err := job.Copy(ctx, buf, i)
		if err != nil {
			return i, err
		}
		if k := chain.Key(i); !load.Right(k, buf[:n]) {
			wrong = i
		}
	}
	if err := job.Release(ctx); err != nil {
		return 0, err
	}
	if wrong >= 0 {
		t.Errorf("chunk %d: wrong bytes under a lease that held", wrong)
	}
	return int(st.Ready.Chunks), nil
}

// stored counts the chains that were acknowledged.
func (tr *traffic) stored() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(tr.mu.chains)
}

// there counts the chunks of the chains stored so far, and how many are in DRAM.
func (tr *traffic) there(t *testing.T) (there, all int) {
	t.Helper()
	tr.mu.Lock()
	chains := slices.Clone(tr.mu.chains)
	tr.mu.Unlock()
	return tr.count(t, chains)
}

// count is there for some chains.
func (tr *traffic) count(t *testing.T, chains []*key.Chain) (there, all int) {
	t.Helper()
	c, err := client.Dial(t.Context(), tr.socket, client.Options{Name: "count", Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, chain := range chains {
		n, err := readRight(t.Context(), t, c, chain)
		if err != nil {
			t.Fatal(err)
		}
		there, all = there+n, all+chain.Len()
	}
	return there, all
}

// succeed has a new process take over from d.
func succeed(t *testing.T, d *daemon.Daemon) *daemon.Daemon {
	t.Helper()
	next := d.Beside()
	if d.Program == "" {
		next.Program = *otherProg
	} else {
		next.Program = ""
	}
	next.Launch("--take-over")
	if ended, err := d.Ended(time.Minute); err != nil || !ended {
		t.Fatal("the hand-over does not end well: ", err)
	}
	return next
}

// Daemons hand over under the eyes of their clients: no byte is wrong, no connect is
// refused, no request takes longer than it may, and all of DRAM is there afterwards.
func TestHandOvers(t *testing.T) {
	for name, disk := range map[string]config.Bytes{"DRAM": 0, "disk": 2 << 30} {
		t.Run(name, func(t *testing.T) {
			d := handOverDaemon(t, disk)
			d.Start()
			tr := newTraffic(d)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients sync.WaitGroup
			for i := range handOverClients {
				clients.Go(func() { tr.run(ctx, t, rand.New(rand.NewPCG(1, uint64(i)))) })
			}
			for tr.stored() == 0 && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
			for round := range *handOvers {
				time.Sleep(100 * time.Millisecond) // of traffic, not a wait for anything
				d = succeed(t, d)
				if there, all := tr.there(t); all == 0 || there < all*99/100 {
					t.Errorf("hand-over %d: %d of %d chunks are in DRAM", round, there, all)
				}
			}
			stop()
			clients.Wait()
			there, all := tr.there(t)
			slices.Sort(tr.mu.gaps)
			t.Logf("%d hand-overs, %d requests answered, %d of %d chunks in DRAM; gaps: median %v, longest %v", *handOvers, tr.mu.answers, there, all,
				tr.mu.gaps[len(tr.mu.gaps)/2].Round(time.Millisecond), tr.mu.gaps[len(tr.mu.gaps)-1].Round(time.Millisecond))
			if there != all {
				t.Errorf("%d of %d chunks are in DRAM", there, all)
			}
			d.Stop()
			if left, _ := os.ReadDir(d.Dir); len(left) > 0 {
				for _, f := range left {
					if f.Type()&os.ModeSocket != 0 {
						t.Errorf("%s is left behind", f.Name())
					}
				}
			}
		})
	}
}

// handedOver ends a successor once the daemon has ended or not, and reports whether that
// has, and how: a daemon that had handed over before may take long to end.
func handedOver(t *testing.T, d, next *daemon.Daemon) (over bool, err error) {
	t.Helper()
	over, err = d.Ended(3 * time.Second) // longer than upgrade.timeout
	next.Kill()
	for deadline := time.Now().Add(time.Minute); !over; time.Sleep(time.Millisecond) {
		c, err := client.Dial(t.Context(), d.Socket, client.Options{Timeout: time.Minute})
		if err == nil {
			c.Close()
			return false, nil
		}
		if over, err := d.Ended(0); over {
			return true, err
		}
		if time.Now().After(deadline) {
			t.Fatalf("the daemon neither serves nor ends: %v", err)
		}
	}
	return over, err
}

// A successor that is killed or stopped at any moment leaves the daemon as it was, with
// all of DRAM, or was the daemon already.
func TestSuccessorDies(t *testing.T) {
	t.Parallel()
	d := handOverDaemon(t, 256<<20)
	d.Configure(func(c *config.Config) { c.Upgrade.Timeout = time.Second })
	d.Start()
	tr := newTraffic(d)
	fill := func() {
		c, err := client.Dial(t.Context(), d.Socket, client.Options{Name: "fill", Space: &load.Space})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		rng := rand.New(rand.NewPCG(1, 2))
		for len(tr.mu.chains) < 50 {
			if err := tr.one(t, c, rng); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	took := 0
	for round := range *badHeirs {
		next := d.Beside()
		next.Launch("--take-over")
		time.Sleep(time.Duration(rng.Int64N(int64(250 * time.Millisecond)))) // the moment of its end
		if round%3 == 2 {
			next.Signal(syscall.SIGSTOP)
		} else {
			next.Kill()
		}
		if over, err := handedOver(t, d, next); over {
			took++
			if err != nil {
				t.Fatal(err)
			}
			tr.mu.most, tr.mu.chains = tr.mu.begun+handOverChains, nil // others: those before may be on disk
			d.Start()
			fill()
			continue
		}
		if there, all := tr.there(t); there != all {
			t.Fatalf("round %d: %d of %d chunks are in DRAM", round, there, all)
		}
	}
	t.Logf("%d successors ended, %d of them after they had taken over", *badHeirs, took)
}
