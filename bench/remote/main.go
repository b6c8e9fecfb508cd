// Command remote compares the remote tier with a bare SDK client: gets and
// puts of 1 and 4 MiB on the same server, in the same run, at the same
// concurrency. It counts the requests of a lookup of 512 chunks, and says when a
// prefix of 64 is there if each request takes 30 ms more. It starts a server of
// its own.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/remote"
	"github.com/kvstored/kvstored/tier"
)

const mib = 1 << 20

var (
	concurrency = flag.Int("concurrency", 8, "requests at a time")
	total       = flag.Int("mib", 512, "MiB put and got of each size in each round")
	rounds      = flag.Int("rounds", 3, "rounds")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "bench/remote:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "kvstored-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s, err := s3test.Start(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Stop()
	if err := errors.Join(os.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey), os.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)); err != nil {
		return err
	}
	a, err := arena.New(arena.Options{CapacityBytes: int64(*concurrency+1) * 8 * mib, Touch: true})
	if err != nil {
		return err
	}
	defer a.Close()
	b := &bench{endpoint: s.Endpoint, arena: a, bare: newBare(s.Endpoint)}
	if b.tier, err = b.open(ctx, s.Endpoint, 2**concurrency); err != nil {
		return err
	}
	defer b.tier.Close()
	for _, size := range []int{mib, 4 * mib} {
		if err := b.compare(ctx, size); err != nil {
			return err
		}
	}
	if err := b.lookups(ctx); err != nil {
		return err
	}
	return b.prefixes(ctx, s)
}

// bench is a server and the two ways to it.
type bench struct {
	endpoint string
	arena    *arena.Arena
	tier     *remote.Tier
	bare     *bare
	names    uint64 // chains made so far
}

// open makes a tier that knows nothing.
func (b *bench) open(ctx context.Context, endpoint string, concurrency int) (*remote.Tier, error) {
	r, err := remote.New(remote.Options{
		Bucket: s3test.Bucket, Prefix: "kvstored", Endpoint: endpoint, Region: s3test.Region, PathStyle: true,
		Concurrency: concurrency, Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, err
	}
	return r, r.Connect(ctx)
}

// Alloc implements tier.Allocator.
func (b *bench) Alloc(_ context.Context, n int) (arena.Block, error) { return b.arena.Alloc(n) }

// chain makes n keys that nobody has.
func (b *bench) chain(n int) []key.Key {
	b.names++
	ks := make([]key.Key, n)
	for i := range ks {
		ks[i].Space[0], ks[i].Hash = 1, key.Hash{byte(b.names), byte(b.names >> 8), byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	return ks
}

// put stores one chunk through the tier.
func (b *bench) put(ctx context.Context, k key.Key, depth int, block arena.Block) error {
	return b.tier.Put(ctx, tier.Entry{Block: block, Record: tier.Record{
		Key: k, Depth: uint32(depth), Tokens: 256, Size: uint32(block.Len()), Sum: block.Sum(),
	}})
}

func (b *bench) get(ctx context.Context, r *remote.Tier, k key.Key) error {
	block, err := r.Get(ctx, k, b)
	if err == nil {
		block.Release()
	}
	return err
}

// way is one of two ways to do the same, and what it took so far.
type way struct {
	do         func(ctx context.Context, i int) error
	took, used time.Duration // of the clock, and of this process's CPU time
}

// run does from..to of them.
func (w *way) run(ctx context.Context, from, to int) error {
	start, used := time.Now(), cpuTime()
	err := parallel(ctx, to-from, func(ctx context.Context, i int) error { return w.do(ctx, from+i) })
	w.took, w.used = w.took+time.Since(start), w.used+cpuTime()-used
	return err
}

// turns does 0..n both ways, a few at a time, so that both see the same machine
// and the same store.
func turns(ctx context.Context, n int, ways [2]*way) error {
	few := 4 * *concurrency
	for from := 0; from < n; from += few {
		for j := range ways {
			if err := ways[(from/few+j)%2].run(ctx, from, min(from+few, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare prints how fast both ways are.
func (b *bench) compare(ctx context.Context, size int) error {
	block, err := b.arena.Alloc(size)
	if err != nil {
		return err
	}
	defer block.Release()
	for i := range block.Bytes() {
		block.Bytes()[i] = byte(i * i >> 7)
	}
	block.Seal()
	n := *total * mib / size
	var puts, gets [2]*way
	for i := range 2 {
		puts[i], gets[i] = new(way), new(way)
	}
	for range *rounds {
		ours, theirs := b.chain(n), b.chain(n)
		puts[0].do = func(ctx context.Context, i int) error { return b.put(ctx, ours[i], i, block) }
		puts[1].do = func(ctx context.Context, i int) error { return b.bare.put(ctx, theirs[i], block.Bytes()) }
		gets[0].do = func(ctx context.Context, i int) error { return b.get(ctx, b.tier, ours[i]) }
		gets[1].do = func(ctx context.Context, i int) error { return b.bare.get(ctx, theirs[i], size) }
		err := errors.Join(turns(ctx, n, puts), turns(ctx, n, gets), b.tier.Delete(ctx, ours), b.tier.Delete(ctx, theirs))
		if err != nil {
			return err
		}
	}
	gib := float64(*rounds) * float64(n) * float64(size) / (1 << 30)
	for _, op := range []struct {
		name string
		ways [2]*way
	}{{"put", puts}, {"get", gets}} {
		ours, theirs := op.ways[0], op.ways[1]
		fmt.Printf("%s %d MiB: tier %.2f GiB/s, bare SDK %.2f GiB/s: %.0f %%; of this process's CPU %.2f and %.2f s/GiB\n", op.name, size/mib,
			gib/ours.took.Seconds(), gib/theirs.took.Seconds(), 100*theirs.took.Seconds()/ours.took.Seconds(),
			ours.used.Seconds()/gib, theirs.used.Seconds()/gib)
	}
	return nil
}

// cpuTime is what this process has used; the server is another one.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lookups prints what it costs to find out how much of 512 chunks is there.
func (b *bench) lookups(ctx context.Context) error {
	const chunks = 512
	block, err := b.arena.Alloc(1000)
	if err != nil {
		return err
	}
	defer block.Release()
	block.Seal()
	for _, present := range []int{0, chunks / 2, chunks} {
		ks := b.chain(chunks)
		if err := parallel(ctx, present, func(ctx context.Context, i int) error { return b.put(ctx, ks[i], i, block) }); err != nil {
			return err
		}
		stranger, err := b.open(ctx, b.endpoint, 2**concurrency)
		if err != nil {
			return err
		}
		start := time.Now()
		n, err := stranger.Find(ctx, ks, nil)
		took := time.Since(start)
		heads := stranger.Stats().Counters["head_requests"]
		if err = errors.Join(err, stranger.Close()); err != nil {
			return err
		}
		fmt.Printf("lookup of %d chunks, %d there: found %d with %d HEADs in %v\n", chunks, present, n, heads, took.Round(10*time.Microsecond))
	}
	return nil
}
