package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// depths that the tier's own rate is the best of.
var depths = []int{4, 8, 16}

// readers reads a chain from the tier itself, so many chunks at a time.
func (b *bench) readers(ctx context.Context, depth int) (time.Duration, error) {
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(depth)
	for _, k := range keys(b.long) {
		g.Go(func() error {
			block, err := b.files.Get(ctx, k, allocator{b.disk.arena})
			if err == nil {
				block.Release()
			}
			return err
		})
	}
	err := g.Wait()
	return time.Since(begun), err
}

type allocator struct{ *arena.Arena }

func (a allocator) Alloc(_ context.Context, n int) (arena.Block, error) { return a.Arena.Alloc(n) }

// fromDisk is the rate of a prefetch over the tier's own.
func (b *bench) fromDisk(ctx context.Context) (float64, error) {
	best := time.Duration(0)
	for _, d := range depths {
		took, err := b.readers(ctx, d)
		if err != nil {
			return 0, err
		}
		if best == 0 || took < best {
			best = took
		}
	}
	took, err := b.disk.prefetch(ctx, b.diskClient, b.long, nil)
	if err != nil {
		return 0, err
	}
	bytes := float64(b.long.Len() * diskChunk)
	b.diskRate, b.tierRate = append(b.diskRate, bytes/took.Seconds()), append(b.tierRate, bytes/best.Seconds())
	return best.Seconds() / took.Seconds(), nil
}

// fromFar is the rate of a prefetch over what so many loads at a time can have,
// and beside it over what goroutines get that do nothing but wait.
func (b *bench) fromFar(ctx context.Context) (float64, error) {
	var sleepers errgroup.Group
	sleepers.SetLimit(farLoads)
	begun := time.Now()
	for range b.farChain.Len() {
		sleepers.Go(func() error {
			time.Sleep(farLatency)
			return nil
		})
	}
	_ = sleepers.Wait() // they do not fail
	slept := time.Since(begun)
	took, err := b.far.prefetch(ctx, b.farClient, b.farChain, nil)
	b.sleepRate = append(b.sleepRate, slept.Seconds()/took.Seconds())
	ideal := time.Duration(b.farChain.Len()) * farLatency / farLoads
	return ideal.Seconds() / took.Seconds(), err
}

// usable is the least, over all moments of a prefetch from disk, of the ready
// chunks and the window over 0.9 x the chunks that came up.
func (b *bench) usable(ctx context.Context) (float64, error) {
	before := b.disk.store.Operator.Stats().Loads[tier.Disk].Bytes
	least := 1e9
	_, err := b.disk.prefetch(ctx, b.diskClient, b.long, func(j *client.Job) {
		came := float64(b.disk.store.Operator.Stats().Loads[tier.Disk].Bytes-before) / diskChunk
		ready, _ := j.Ready() // after what came was read: it is that much at least
		if need := 0.9 * came; need > 0 {
			least = min(least, (float64(ready)+float64(window)/diskChunk)/need)
		}
	})
	return least, err
}

// pushes is how many a percentile is taken of.
const pushes = 300

// push is the time from the end of a read to the client that waits for it, of
// many jobs of one chunk: the 99th percentile, in ms.
func (b *bench) push(ctx context.Context) (float64, error) {
	var took []time.Duration
	for range pushes {
		begun := time.Now()
		all, err := b.disk.prefetch(ctx, b.diskClient, b.short, nil)
		if err != nil {
			return 0, err
		}
		took = append(took, begun.Add(all).Sub(time.Unix(0, b.disk.got.Load())))
	}
	b.pushMedian = append(b.pushMedian, millis(took, 50))
	return millis(took, 99), b.bare(ctx)
}

// bare is what a push takes at least, on this machine and now: the time from the
// end of a read to a goroutine that waits at a socket for a byte.
func (b *bench) bare(ctx context.Context) error {
	from, to, err := b.disk.sockets()
	if err != nil {
		return err
	}
	defer from.Close()
	defer to.Close()
	var took []time.Duration
	for range pushes {
		read := make(chan error, 1)
		go func() {
			block, err := b.files.Get(ctx, b.short.Key(0), allocator{b.disk.arena})
			if err == nil {
				block.Release()
				b.disk.got.Store(time.Now().UnixNano())
			}
			_, werr := from.Write([]byte{0})
			read <- errors.Join(err, werr)
		}()
		if _, err := to.Read(make([]byte, 1)); err != nil {
			return err
		}
		took = append(took, time.Since(time.Unix(0, b.disk.got.Load())))
		if err := <-read; err != nil {
			return err
		}
	}
	b.bareMedian, b.bareMost = append(b.bareMedian, millis(took, 50)), append(b.bareMost, millis(took, 99))
	return nil
}

// millis is a percentile in ms.
func millis(took []time.Duration, percent int) float64 {
	slices.Sort(took)
	return took[len(took)*percent/100].Seconds() * 1e3
}

// fairness is the least of Jain's index over the clients while between 10 %
// and 90 % of the work is done.
func (b *bench) fairness(ctx context.Context) (float64, error) {
	had := make([]atomic.Int64, len(b.crowd))
	work := 0
	var jobs sync.WaitGroup
	failed := make(chan error, 1)
	for i, member := range b.crowd {
		for _, chain := range member.chains {
			work += chain.Len()
			jobs.Go(func() {
				if err := follow(ctx, member.client, chain, &had[i]); err != nil {
					select {
					case failed <- err:
					default:
					}
				}
			})
		}
	}
	done := make(chan struct{})
	go func() {
		jobs.Wait()
		close(done)
	}()
	least := b.sample(had, work, done)
	for _, member := range b.crowd {
		for _, chain := range member.chains {
			if err := b.far.cool(ctx, chain); err != nil {
				return 0, err
			}
		}
	}
	select {
	case err := <-failed:
		return 0, err
	default:
		return least, nil
	}
}

// sample watches what the clients have until all is done.
func (b *bench) sample(had []atomic.Int64, work int, done chan struct{}) float64 {
	least := 1.0
	for tick := time.Tick(5 * time.Millisecond); ; {
		select {
		case <-tick:
		case <-done:
			return least
		}
		sum, squares := 0.0, 0.0
		for i := range had {
			n := float64(had[i].Load())
			sum, squares = sum+n, squares+n*n
		}
		if sum >= 0.1*float64(work) && sum <= 0.9*float64(work) {
			least = min(least, sum*sum/(float64(len(had))*squares))
		}
	}
}

// follow prefetches a chain and counts the chunks that are ready.
func follow(ctx context.Context, c *client.Client, chain *key.Chain, had *atomic.Int64) error {
	j, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{})
	if err != nil {
		return err
	}
	for ready := 0; ; {
		st, err := j.Wait(ctx, int64(ready+1)*chunkTokens)
		if err != nil {
			return err
		}
		had.Add(int64(int(st.Ready.Chunks) - ready))
		if ready = int(st.Ready.Chunks); st.Done {
			if ready != chain.Len() {
				return fmt.Errorf("a prefetch ended by %s", st.Reason.String())
			}
			return j.Release(ctx)
		}
	}
}
