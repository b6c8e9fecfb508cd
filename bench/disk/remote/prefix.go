package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/remote"
)

// prefixes prints how long a prefix takes that a machine knows nothing of, in
// times of one request.
func (b *bench) prefixes(ctx context.Context, s *s3test.Server) error {
	const chunks, added = 64, 30 * time.Millisecond
	block, err := b.arena.Alloc(64 << 10)
	if err != nil {
		return err
	}
	defer block.Release()
	block.Seal()
	ks := b.chain(chunks)
	if err := parallel(ctx, chunks, func(ctx context.Context, i int) error { return b.put(ctx, ks[i], i, block) }); err != nil {
		return err
	}
	p := s3test.NewProxy(s)
	defer p.Stop()
	p.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Delay: added} })
	for _, concurrency := range []int{8, 16, 32} {
		r, err := b.open(ctx, p.Endpoint, concurrency)
		if err != nil {
			return err
		}
		one, err := b.alone(ctx, r, ks[0])
		if err != nil {
			return err
		}
		first, all, err := b.prefix(ctx, r, ks, concurrency)
		if err = errors.Join(err, r.Close()); err != nil {
			return err
		}
		fmt.Printf("prefix of %d chunks, %v added to each request, %d at a time: first chunk after %v (%.1f request times; at most 3), all after %v (%.1f; at most %d)\n",
			chunks, added, concurrency, first.Round(time.Millisecond), first.Seconds()/one.Seconds(),
			all.Round(time.Millisecond), all.Seconds()/one.Seconds(), chunks/concurrency+3)
	}
	return nil
}

// alone is what one request takes while nothing else is under way.
func (b *bench) alone(ctx context.Context, r *remote.Tier, k key.Key) (took time.Duration, err error) {
	const tries = 5
	for range tries {
		start := time.Now()
		if err := b.get(ctx, r, k); err != nil {
			return 0, err
		}
		if d := time.Since(start); took == 0 || d < took {
			took = d
		}
	}
	return took, nil
}

// prefix finds out how much of ks is there, and gets it meanwhile.
func (b *bench) prefix(ctx context.Context, r *remote.Tier, ks []key.Key, concurrency int) (first, all time.Duration, err error) {
	start := time.Now()
	found := make(chan int, len(ks))
	var n int
	var finding, getting errgroup.Group
	finding.Go(func() (err error) {
		defer close(found)
		n, err = r.Find(ctx, ks, func(n int) { found <- n })
		return err
	})
	getting.SetLimit(concurrency)
	at := 0
	for n := range found {
		for ; at < n; at++ {
			i := at
			getting.Go(func() error {
				err := b.get(ctx, r, ks[i])
				if i == 0 {
					first = time.Since(start)
				}
				return err
			})
		}
	}
	if err := errors.Join(finding.Wait(), getting.Wait()); err != nil {
		return 0, 0, err
	}
	if n != len(ks) {
		return 0, 0, fmt.Errorf("%d of %d chunks were found", n, len(ks))
	}
	return first, time.Since(start), nil
}
