package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/remote"
	"github.com/kvstored/kvstored/tier"
)

const (
	mib     = 1 << 20
	largest = 8 // MiB of a payload
)

var (
	only        = flag.String("only", "put,get,lookup,prefix", "what to measure")
	sizes       = flag.String("size", "1,4", "MiB of a payload that is put or got")
	concurrency = flag.Int("concurrency", 8, "requests at a time")
	total       = flag.Int("mib", 64, "MiB each way in each pair of turns")
	pairs       = flag.Int("pairs", 40, "pairs of turns for each operation and size")
	profile     = flag.String("cpuprofile", "", "file for a CPU profile of the turns")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "remote:", err)
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
	a, err := arena.New(arena.Options{CapacityBytes: int64(*concurrency+1) * largest * mib, Touch: arena.Touch})
	if err != nil {
		return err
	}
	defer a.Close()
	if err := a.Populate(ctx); err != nil {
		return err
	}
	b := &bench{endpoint: s.Endpoint, arena: a, bare: newBare(s.Endpoint)}
	if b.tier, err = b.open(ctx, s.Endpoint, 2**concurrency); err != nil {
		return err
	}
	defer b.tier.Close()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return b.measure(ctx, s)
}

// measure does what the flags say.
func (b *bench) measure(ctx context.Context, s *s3test.Server) error {
	parts := strings.Split(*only, ",")
	puts, gets := slices.Contains(parts, "put"), slices.Contains(parts, "get")
	for size := range strings.SplitSeq(*sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil || n < 1 || n > largest {
			return fmt.Errorf("-size %s: 1 to %d MiB", size, largest)
		}
		if puts || gets {
			err = b.compare(ctx, n*mib, puts, gets)
		}
		if err != nil {
			return err
		}
	}
	if slices.Contains(parts, "lookup") {
		if err := b.lookups(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(parts, "prefix") {
		return b.prefixes(ctx, s)
	}
	return nil
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

// chain makes n new keys.
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

// lookups prints the cost of finding out how much of 512 chunks is stored.
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
