package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/socket"
)

const (
	chainLen = 1000 // of the lookups
	leaseLen = 32   // of lease and release, of 4 MiB each

	batch = 16 // chunks of a prompt that are put or read together
)

var sizes = []int{64 << 10, 256 << 10, 1 << 20, 4 << 20, 8 << 20}

func main() {
	if len(os.Args) == 4 && os.Args[1] == "bare" {
		d, err := time.ParseDuration(os.Args[3])
		if err == nil {
			err = serveBare(os.Args[2], d)
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
	b                   *buffers
	bareBlock, barePoll *bare
	staged              *daemon
	hits                map[int][]client.Prompt // stored for get, by size
	hit, miss, leased   client.Prompt
	rows                []*row
}

// row is one line of the table: the measurements by round.
type row struct {
	name, floor string  // floor is what least is
	limit       float64 // of took in terms of least; 0: no goal
	bytes       int     // of a value; 0: there is none
	seen        []sample
}

// sample is one measurement, of one value.
type sample struct {
	took, least time.Duration
	copy        time.Duration // C
	bare        time.Duration // by the bare server; 0: not measured
	used        time.Duration // processor time of client and daemon for the working set; 0: not measured
}

// timesOf is how many times least, copy or bare it took, 0 where that was not measured.
func (s *sample) timesOf(d time.Duration) float64 {
	if d == 0 {
		return 0
	}
	return float64(s.took) / float64(d)
}

func run(ctx context.Context, rounds int, binary string) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary, err = measure.Program(ctx, binary, dir); err != nil {
		return err
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
	if x.bareBlock, err = startBare(dir, "bare-block", 0); err != nil {
		return err
	}
	if x.barePoll, err = startBare(dir, "bare-poll", socket.LongestPoll); err != nil {
		return err
	}
	if x.staged, err = startDaemon(ctx, binary, dir, 4096); err != nil {
		return err
	}
	for _, size := range sizes {
		ps := x.staged.prompts(workingSet / size)
		if _, err := x.staged.put(ctx, x.b, ps, size); err != nil {
			return err
		}
		x.hits[size] = ps
	}
	x.hit, x.miss, x.leased = x.staged.made.New(chainLen), x.staged.made.New(chainLen), x.staged.made.New(leaseLen)
	if err := x.staged.fillChain(ctx, x.hit, 4096); err != nil {
		return err
	}
	return x.staged.fillChain(ctx, x.leased, 4<<20)
}

// close ends what start has started.
func (x *bench) close() {
	x.staged.close()
	x.bareBlock.close()
	x.barePoll.close()
}

func (x *bench) round(ctx context.Context) error {
	if _, err := x.roundTrip(ctx, "round trip after 2 ms of silence", timedIdle, x.bareBlock, x.staged); err != nil {
		return err
	}
	r, err := x.roundTrip(ctx, "round trip", timed, x.barePoll, x.staged)
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
func (x *bench) roundTrip(ctx context.Context, name string, how func(func() error) (time.Duration, error), e *bare, d *daemon) (time.Duration, error) {
	r, err := how(e.trip)
	if err != nil {
		return 0, err
	}
	took, err := how(func() error { return d.c.Ping(ctx) })
	x.add(name, "R", 1.5, 0, sample{took: took, least: r})
	return r, err
}

// limitOf is how many times its floor a transfer of size bytes may take.
func limitOf(size int) float64 {
	if size < 1<<20 {
		return 1.35
	}
	return 1.25
}

// machine is what the floors of one size took in this round.
type machine struct {
	size int
	way  measure.Copy
	c, h time.Duration // C and H
	r    time.Duration // R
}

func (x *bench) transfers(ctx context.Context, size int, r time.Duration) error {
	m := &machine{size: size, h: floorHash(x.b, size), r: r}
	m.way, m.c = floorCopy(x.b, size)
	x.add("copy "+mib(size)+", two threads", "C", 0, size, sample{took: floorTwo(x.b, size, m.way), least: m.c})
	bare, err := x.barePoll.get(x.b, size, 1, m.way)
	if err != nil {
		return err
	}
	s, err := x.staged.measure(func() (time.Duration, error) { return x.staged.get(ctx, x.b, x.hits[size], size) })
	if err != nil {
		return err
	}
	s.least, s.copy, s.bare = m.c+r, m.c, bare
	x.add("get "+mib(size), "C + R", limitOf(size), size, s)
	return x.puts(ctx, x.staged, m)
}

// puts times puts: of one chunk, and of chains, put with one commit for
// all, read under one lease, and put with one and with two commits in flight.
func (x *bench) puts(ctx context.Context, d *daemon, m *machine) error {
	k := kind{"staged", "2C + H", 2*m.c + m.h, bareTake, client.CopyTo}
	bare, err := x.single(ctx, d, m, &k)
	if err != nil {
		return err
	}
	if err := x.batches(ctx, d, m, &k); err != nil {
		return err
	}
	return x.inFlight(ctx, d, m, &k, bare)
}

// kind is a kind of puts: the work that a value takes, and how the bare server does it.
type kind struct {
	name, work string
	least      time.Duration
	op         bareOp
	write      measure.Copy // of the client
}

// single times puts of one chunk each, and returns what the bare server takes.
func (x *bench) single(ctx context.Context, d *daemon, m *machine, k *kind) (bare time.Duration, err error) {
	if bare, err = x.barePoll.put(x.b, k.op, m.size, 1, 1, k.write); err != nil {
		return 0, err
	}
	ps := d.prompts(workingSet / m.size)
	s, err := d.measure(func() (time.Duration, error) { return d.put(ctx, x.b, ps, m.size) })
	if err != nil {
		return 0, err
	}
	s.least, s.copy, s.bare = k.least+2*m.r, m.c, bare
	x.add(k.name+" put "+mib(m.size), k.work+" + 2R", limitOf(m.size), m.size, s)
	return bare, d.forget(ctx, ps)
}

func (x *bench) batches(ctx context.Context, d *daemon, m *machine, k *kind) error {
	bare, err := x.barePoll.put(x.b, k.op, m.size, batch, 1, k.write)
	if err != nil {
		return err
	}
	ps := d.chains(workingSet/m.size/batch, batch)
	s, err := d.measure(func() (time.Duration, error) { return d.putBatch(ctx, x.b, ps, batch, m.size) })
	if err != nil {
		return err
	}
	s.least, s.copy, s.bare = k.least, m.c, bare
	x.add(fmt.Sprintf("%s put %s in batches of %d", k.name, mib(m.size), batch), k.work, limitOf(m.size), m.size, s)
	bare, err = x.barePoll.get(x.b, m.size, batch, m.way)
	if err != nil {
		return err
	}
	s, err = d.measure(func() (time.Duration, error) { return d.getBatch(ctx, x.b, ps, batch, m.size) })
	if err != nil {
		return err
	}
	s.least, s.copy, s.bare = m.c, m.c, bare
	x.add(fmt.Sprintf("get %s in batches of %d", mib(m.size), batch), "C", limitOf(m.size), m.size, s)
	return d.forget(ctx, ps)
}

// inFlight times chains of which each chunk is committed by itself, one and two at a
// time.
func (x *bench) inFlight(ctx context.Context, d *daemon, m *machine, k *kind, bareOne time.Duration) error {
	bareTwo, err := x.barePoll.put(x.b, k.op, m.size, 1, 2, k.write)
	if err != nil {
		return err
	}
	var took [2]time.Duration
	for i := range took {
		chunks := together(m.size)
		ps := d.chains(workingSet/m.size/chunks, chunks)
		if took[i], err = d.putMany(ctx, x.b, ps, chunks, m.size, i+1); err != nil {
			return err
		}
		if err := d.forget(ctx, ps); err != nil {
			return err
		}
	}
	x.add(fmt.Sprintf("%s put %s, two in flight", k.name, mib(m.size)), "one in flight", 1/1.3, m.size, sample{took: took[1], least: took[0], copy: m.c, bare: bareTwo})
	x.add(fmt.Sprintf("bare %s put %s, two in flight", k.name, mib(m.size)), "one in flight", 0, m.size, sample{took: bareTwo, least: bareOne, copy: m.c})
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
	x.add("lookup 1,000 chunks, all there", "100 us", 1, 0, sample{took: hit, least: 100 * time.Microsecond})
	miss, err := x.staged.lookup(ctx, x.miss, 0)
	if err != nil {
		return err
	}
	x.add("lookup 1,000 chunks, none there", "100 us", 1, 0, sample{took: miss, least: 100 * time.Microsecond})
	lease, err := x.staged.lease(ctx, x.leased, leaseLen)
	if err != nil {
		return err
	}
	x.add("lease and release 32 chunks of 4 MiB", "30 us", 1, 0, sample{took: lease, least: 30 * time.Microsecond})
	return nil
}
