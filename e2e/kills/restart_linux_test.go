package kills

import (
	"context"
	"errors"
	"flag"
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
	restarts  = flag.Int("restarts", 3, "how often TestRestarts restarts the daemon; 50 for a long run")
	otherProg = flag.String("other-program", "", "an older kvstored, with which TestRestarts alternates")
)

const (
	trafficClients = 4
	trafficChains  = 300              // of 1 to 6 chunks, 38 MB for each 100: all of it fits into DRAM
	requestMost    = 30 * time.Second // that a request may take, a restart included
)

// keptDaemon is one whose memory is kept, with room in DRAM for all that is stored, and its
// keeper.
func keptDaemon(t *testing.T, disk config.Bytes) (d, keeper *daemon.Daemon) {
	t.Helper()
	d = daemon.Folder(t, func(c *config.Config) {
		c.Admin.Listen = "127.0.0.1:0"
		c.CPU.Capacity, c.CPU.Keep = 512<<20, true
		c.Disk.Capacity = disk
	})
	return d, d.Keep()
}

// traffic is what clients store and read while daemons come and go.
type traffic struct {
	socket string
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
	tr.mu.most = trafficChains
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
			c, err = client.Dial(t.Context(), tr.socket, client.Options{Name: "traffic", Space: &load.Space, Timeout: requestMost})
			if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, os.ErrNotExist) {
				t.Errorf("a connect was refused: %v", err)
				return
			}
		}
		if err == nil {
			err = tr.one(t, c, rng)
		}
		if took := time.Since(begun); took > requestMost+time.Minute { // it hangs; the client's time is asked in a bubble
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
	ctx, cancel := context.WithTimeout(t.Context(), requestMost)
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

// again starts the daemon, or the other program in turns.
func again(d *daemon.Daemon) {
	if d.Program == "" {
		d.Program = *otherProg
	} else {
		d.Program = ""
	}
	d.Start()
}

// Daemons restart under the eyes of their clients: no byte is wrong, no connect is
// refused, no request takes longer than it may, and all of DRAM is there afterwards.
func TestRestarts(t *testing.T) {
	for name, disk := range map[string]config.Bytes{"DRAM": 0, "disk": 2 << 30} {
		t.Run(name, func(t *testing.T) {
			d, _ := keptDaemon(t, disk)
			d.Start()
			tr := newTraffic(d)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var clients sync.WaitGroup
			for i := range trafficClients {
				clients.Go(func() { tr.run(ctx, t, rand.New(rand.NewPCG(1, uint64(i)))) })
			}
			for tr.stored() == 0 && !t.Failed() {
				time.Sleep(time.Millisecond)
			}
			for round := range *restarts {
				time.Sleep(100 * time.Millisecond) // of traffic, not a wait for anything
				d.Stop()
				again(d)
				if there, all := tr.there(t); all == 0 || there < all {
					t.Errorf("restart %d: %d of %d chunks are in DRAM", round, there, all)
				}
			}
			stop()
			clients.Wait()
			there, all := tr.there(t)
			slices.Sort(tr.mu.gaps)
			t.Logf("%d restarts, %d requests answered, %d of %d chunks in DRAM; gaps: median %v, longest %v", *restarts, tr.mu.answers, there, all,
				tr.mu.gaps[len(tr.mu.gaps)/2].Round(time.Millisecond), tr.mu.gaps[len(tr.mu.gaps)-1].Round(time.Millisecond))
			if there != all {
				t.Errorf("%d of %d chunks are in DRAM", there, all)
			}
			d.Stop()
		})
	}
}
