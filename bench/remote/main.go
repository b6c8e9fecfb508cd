// Command remote compares the remote tier with a bare SDK client: gets and
// puts of 1 and 4 MiB on the same server, in the same run, at the same
// concurrency; and it counts the requests of a lookup of 512 chunks. It starts
// a server of its own.
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
	rounds      = flag.Int("rounds", 3, "rounds; the best of each counts")
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
	if b.tier, err = b.open(ctx); err != nil {
		return err
	}
	defer b.tier.Close()
	for _, size := range []int{mib, 4 * mib} {
		if err := b.compare(ctx, size); err != nil {
			return err
		}
	}
	return b.lookups(ctx)
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
func (b *bench) open(ctx context.Context) (*remote.Tier, error) {
	r, err := remote.New(remote.Options{
		Bucket: s3test.Bucket, Prefix: "kvstored", Endpoint: b.endpoint, Region: s3test.Region, PathStyle: true,
		Concurrency: 2 * *concurrency, Log: zerolog.Nop(),
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

func (b *bench) get(ctx context.Context, k key.Key) error {
	block, err := b.tier.Get(ctx, k, b)
	if err == nil {
		block.Release()
	}
	return err
}

// compare prints how fast both ways are; the ways take turns.
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
	gib := float64(n) * float64(size) / (1 << 30)
	best, cheapest := map[string]float64{}, map[string]float64{}
	for range *rounds {
		ours, theirs := b.chain(n), b.chain(n)
		for _, step := range []struct {
			name string
			do   func(context.Context, int) error
		}{
			{"put", func(ctx context.Context, i int) error { return b.put(ctx, ours[i], i, block) }},
			{"bare put", func(ctx context.Context, i int) error { return b.bare.put(ctx, theirs[i], block.Bytes()) }},
			{"get", func(ctx context.Context, i int) error { return b.get(ctx, ours[i]) }},
			{"bare get", func(ctx context.Context, i int) error { return b.bare.get(ctx, theirs[i], size) }},
		} {
			start, used := time.Now(), cpuTime()
			if err := parallel(ctx, n, step.do); err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			best[step.name] = max(best[step.name], gib/time.Since(start).Seconds())
			if cost := (cpuTime() - used).Seconds() / gib; cheapest[step.name] == 0 || cost < cheapest[step.name] {
				cheapest[step.name] = cost
			}
		}
		for _, ks := range [][]key.Key{ours, theirs} {
			if err := b.tier.Delete(ctx, ks); err != nil {
				return err
			}
		}
	}
	for _, op := range []string{"put", "get"} {
		bare := "bare " + op
		fmt.Printf("%s %d MiB: tier %.2f GiB/s, bare SDK %.2f GiB/s: %.0f %%; of this process's CPU %.2f and %.2f s/GiB\n",
			op, size/mib, best[op], best[bare], 100*best[op]/best[bare], cheapest[op], cheapest[bare])
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
		stranger, err := b.open(ctx)
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
