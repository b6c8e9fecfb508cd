package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/kvstored/kvstored/client"
)

const (
	spin     = time.Millisecond
	chainLen = 1000 // of the lookups
	leaseLen = 32   // of lease and release, of 4 MiB each

	batch = 16 // chunks of a prompt that are put or read together
)

var sizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "echo" {
		d, err := time.ParseDuration(os.Args[3])
		if err == nil {
			err = echoServer(os.Args[2], d)
		}
		exit(err)
	}
	rounds := flag.Int("rounds", 9, "how often everything is timed")
	binary := flag.String("kvstored", "", "daemon to measure; empty builds this tree's")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) // daemons of 6 GiB are not left behind
	defer stop()
	exit(run(ctx, *rounds, *binary))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "hot:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// bench is everything under test, and its floors.
type bench struct {
	b                        *buffers
	echoBlock, echoSpin      *echoClient
	staged, direct, blocking *daemon
	hits                     map[int][]client.Prompt // stored for get, by size
	hit, miss, leased        client.Prompt
	rows                     []*row
}

// row is one line of the table: the measurements and their floor, by round.
type row struct {
	name, floor string
	limit       float64
	took, least []time.Duration
	bytes       int
}

func run(ctx context.Context, rounds int, binary string) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		binary = filepath.Join(dir, "kvstored")
		if out, err := exec.Command("go", "build", "-o", binary, "github.com/kvstored/kvstored/cmd/kvstored").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
	}
	x := &bench{b: newBuffers(), hits: make(map[int][]client.Prompt)}
	defer x.close()
	if err := x.start(ctx, dir, binary); err != nil {
		return err
	}
	for i := range rounds {
		if err := x.round(ctx); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		fmt.Fprintf(os.Stderr, "round %d of %d\n", i+1, rounds)
	}
	x.print()
	return nil
}

func (x *bench) start(ctx context.Context, dir, binary string) (err error) {
	if x.echoBlock, err = startEcho(dir, "echo-block", 0); err != nil {
		return err
	}
	if x.echoSpin, err = startEcho(dir, "echo-spin", spin); err != nil {
		return err
	}
	if x.staged, err = startDaemon(ctx, binary, dir, "staged", "staged", 4096, spin); err != nil {
		return err
	}
	if x.direct, err = startDaemon(ctx, binary, dir, "direct", "direct", 2048, spin); err != nil {
		return err
	}
	if x.blocking, err = startDaemon(ctx, binary, dir, "blocking", "staged", 64, 0); err != nil {
		return err
	}
	for _, size := range sizes {
		ps := x.staged.prompts(workingSet / size)
		if _, err := x.staged.put(ctx, x.b, ps, size); err != nil {
			return err
		}
		x.hits[size] = ps
	}
	x.hit, x.miss, x.leased = x.staged.prompt(chainLen), x.staged.prompt(chainLen), x.staged.prompt(leaseLen)
	if err := x.staged.fillChain(ctx, x.hit, 4096); err != nil {
		return err
	}
	return x.staged.fillChain(ctx, x.leased, 4<<20)
}

// close ends what start has started.
func (x *bench) close() {
	for _, d := range []*daemon{x.staged, x.direct, x.blocking} {
		d.close()
	}
	x.echoBlock.close()
	x.echoSpin.close()
}

func (x *bench) round(ctx context.Context) error {
	if _, err := x.roundTrip(ctx, "round trip, blocking", timed, x.echoBlock, x.blocking); err != nil {
		return err
	}
	if _, err := x.roundTrip(ctx, "round trip after 2 ms of silence", timedIdle, x.echoBlock, x.staged); err != nil {
		return err
	}
	r, err := x.roundTrip(ctx, "round trip, spinning", timed, x.echoSpin, x.staged)
	if err != nil {
		return err
	}
	for _, size := range sizes {
		if err := x.transfers(ctx, size, r); err != nil {
			return fmt.Errorf("%s: %w", mib(size), err)
		}
	}
	return x.chains(ctx)
}

// roundTrip times an empty round trip beside its floor, which it returns.
func (x *bench) roundTrip(ctx context.Context, name string, how func(func() error) (time.Duration, error), e *echoClient, d *daemon) (time.Duration, error) {
	r, err := how(e.trip)
	if err != nil {
		return 0, err
	}
	took, err := how(func() error { return d.c.Ping(ctx) })
	x.add(name, "R", 1.5, 0, took, r)
	return r, err
}

// limitOf is how many times its floor a transfer of size bytes may take.
func limitOf(size int) float64 {
	if size < 1<<20 {
		return 1.35
	}
	return 1.25
}

func (x *bench) transfers(ctx context.Context, size int, r time.Duration) error {
	c, h := floorCopy(x.b, size), floorHash(x.b, size)
	got, err := x.staged.get(ctx, x.b, x.hits[size], size)
	if err != nil {
		return err
	}
	x.add("get "+mib(size), "C + R", limitOf(size), size, got, c+r)
	if err := x.put(ctx, x.staged, "staged put "+mib(size), "2C + H + 2R", size, 2*c+h+2*r); err != nil {
		return err
	}
	if err := x.put(ctx, x.direct, "direct put "+mib(size), "C + H + 2R", size, c+h+2*r); err != nil {
		return err
	}
	return x.batches(ctx, size, c, h)
}

// put times puts of one chunk.
func (x *bench) put(ctx context.Context, d *daemon, name, floor string, size int, least time.Duration) error {
	ps := d.prompts(workingSet / size)
	took, err := d.put(ctx, x.b, ps, size)
	if err != nil {
		return err
	}
	x.add(name, floor, limitOf(size), size, took, least)
	return d.forget(ctx, ps)
}

// batches times chains: put with one commit for all, read under one lease, and
// put with one and with two commits in flight.
func (x *bench) batches(ctx context.Context, size int, c, h time.Duration) error {
	for _, d := range []*daemon{x.staged, x.direct} {
		kind, floor, least := "staged", "2C + H", 2*c+h
		if d == x.direct {
			kind, floor, least = "direct", "C + H", c+h
		}
		n := workingSet / size / batch
		ps := d.chains(n, batch)
		took, err := d.putBatch(ctx, x.b, ps, batch, size)
		if err != nil {
			return err
		}
		x.add(fmt.Sprintf("%s put %s in batches of %d", kind, mib(size), batch), floor, limitOf(size), size, took, least)
		if d == x.staged {
			if took, err = d.getBatch(ctx, x.b, ps, batch, size); err != nil {
				return err
			}
			x.add(fmt.Sprintf("get %s in batches of %d", mib(size), batch), "C", limitOf(size), size, took, c)
		}
		if err := d.forget(ctx, ps); err != nil {
			return err
		}
		var inFlight [2]time.Duration
		for i := range inFlight {
			chunks := together(size)
			ps := d.chains(workingSet/size/chunks, chunks)
			if inFlight[i], err = d.putMany(ctx, x.b, ps, chunks, size, i+1); err != nil {
				return err
			}
			if err := d.forget(ctx, ps); err != nil {
				return err
			}
		}
		x.add(fmt.Sprintf("%s put %s, two in flight", kind, mib(size)), "one in flight", 1/1.3, size, inFlight[1], inFlight[0])
	}
	return nil
}

// together is how many chunks a prompt has of which some are put in flight: 8 MiB of
// them, but two at least and a batch at most.
func together(size int) int { return max(2, min(batch, (8<<20)/size)) }

func (x *bench) chains(ctx context.Context) error {
	hit, err := x.staged.lookup(ctx, x.hit, chainLen)
	if err != nil {
		return err
	}
	x.add("lookup 1,000 chunks, all there", "100 us", 1, 0, hit, 100*time.Microsecond)
	miss, err := x.staged.lookup(ctx, x.miss, 0)
	if err != nil {
		return err
	}
	x.add("lookup 1,000 chunks, none there", "100 us", 1, 0, miss, 100*time.Microsecond)
	lease, err := x.staged.lease(ctx, x.leased, leaseLen)
	if err != nil {
		return err
	}
	x.add("lease and release 32 chunks of 4 MiB", "30 us", 1, 0, lease, 30*time.Microsecond)
	return nil
}

func (x *bench) add(name, floor string, limit float64, bytes int, took, least time.Duration) {
	i := slices.IndexFunc(x.rows, func(r *row) bool { return r.name == name })
	if i < 0 {
		i = len(x.rows)
		x.rows = append(x.rows, &row{name: name, floor: floor, limit: limit, bytes: bytes})
	}
	x.rows[i].took = append(x.rows[i].took, took)
	x.rows[i].least = append(x.rows[i].least, least)
}

func (x *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "what\tmedian us\tGiB/s\tfloor\tfloor us\tratio\tmin\tmax\tgoal\t")
	for _, r := range x.rows {
		ratios := make([]float64, len(r.took))
		for i := range ratios {
			ratios[i] = float64(r.took[i]) / float64(r.least[i])
		}
		slices.Sort(ratios)
		rate := "-"
		if r.bytes > 0 {
			rate = fmt.Sprintf("%.1f", float64(r.bytes)/median(r.took).Seconds()/(1<<30))
		}
		verdict := "met"
		if ratios[len(ratios)/2] > r.limit {
			verdict = "missed"
		}
		fmt.Fprintf(w, "%s\t%.1f\t%s\t%s\t%.1f\t%.2f\t%.2f\t%.2f\t<= %.2f %s\t\n", r.name, us(median(r.took)), rate, r.floor, us(median(r.least)),
			ratios[len(ratios)/2], ratios[0], ratios[len(ratios)-1], r.limit, verdict)
	}
	_ = w.Flush() // to standard output
}

func median(ds []time.Duration) time.Duration {
	s := slices.Clone(ds)
	slices.Sort(s)
	return s[len(s)/2]
}

func us(d time.Duration) float64 { return float64(d) / 1e3 }

func mib(n int) string {
	if n < 1<<20 {
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d MiB", n>>20)
}
