package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/key"
)

// way is one of two ways to do the same, and its time in each of its turns.
type way struct {
	do   func(ctx context.Context, i int) error
	took []time.Duration
	used time.Duration // of this process's CPU time, in all turns
}

// turn does 0..n.
func (w *way) turn(ctx context.Context, n int) error {
	start, used := time.Now(), cpuTime()
	err := parallel(ctx, n, w.do)
	w.took, w.used = append(w.took, time.Since(start)), w.used+cpuTime()-used
	return err
}

// duel is an operation done both ways, in pairs of turns. Which way begins is
// left to chance, so that both see the same machine and the same store.
type duel struct {
	op           string
	ours, theirs way
}

func (d *duel) pair(ctx context.Context, n int) error {
	ways := [2]*way{&d.ours, &d.theirs}
	first := rand.IntN(2)
	return errors.Join(ways[first].turn(ctx, n), ways[1-first].turn(ctx, n))
}

// print says how fast both ways are: medians of the turns, and of the ratios of
// the pairs with their quartiles.
func (d *duel) print(n, size int) {
	ratios := make([]float64, len(d.ours.took))
	for i := range ratios {
		ratios[i] = 100 * d.theirs.took[i].Seconds() / d.ours.took[i].Seconds()
	}
	gib := float64(n) * float64(size) / (1 << 30)
	rate := func(w *way) float64 { return gib / quantile(w.took, 0.5).Seconds() }
	cost := func(w *way) float64 { return w.used.Seconds() / gib / float64(len(w.took)) }
	fmt.Printf("%s %d MiB: tier %.2f GiB/s, bare SDK %.2f GiB/s: %.0f %% (%.0f-%.0f); of this process's CPU %.2f and %.2f s/GiB\n", d.op, size/mib,
		rate(&d.ours), rate(&d.theirs), quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75), cost(&d.ours), cost(&d.theirs))
}

// quantile sorts a copy.
func quantile[T int | time.Duration | float64](v []T, q float64) T {
	v = slices.Sorted(slices.Values(v))
	return v[int(q*float64(len(v)-1)+0.5)]
}

// cpuTime is what this process has used; the server is another one.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compare prints how fast payloads of a size are put and got. A first pair of
// turns warms both and the server and does not count.
func (b *bench) compare(ctx context.Context, size int, puts, gets bool) error {
	block, err := b.arena.Alloc(size)
	if err != nil {
		return err
	}
	defer block.Release()
	for i := range block.Bytes() {
		block.Bytes()[i] = byte(i * i >> 7)
	}
	block.Seal()
	n := max(1, *total*mib/size)
	var ours, theirs []key.Key
	put, get := duel{op: "put"}, duel{op: "get"}
	put.ours.do = func(ctx context.Context, i int) error { return b.put(ctx, ours[i], i, block) }
	put.theirs.do = func(ctx context.Context, i int) error { return b.bare.put(ctx, theirs[i], block.Bytes()) }
	get.ours.do = func(ctx context.Context, i int) error { return b.get(ctx, b.tier, ours[i]) }
	get.theirs.do = func(ctx context.Context, i int) error { return b.bare.get(ctx, theirs[i], size) }
	for i := range *pairs + 1 {
		if i == 0 || puts {
			ours, theirs = b.chain(n), b.chain(n)
			if err := put.pair(ctx, n); err != nil {
				return err
			}
		}
		if gets {
			if err := get.pair(ctx, n); err != nil {
				return err
			}
		}
		if puts {
			if err := errors.Join(b.tier.Delete(ctx, ours), b.tier.Delete(ctx, theirs)); err != nil {
				return err
			}
		}
		if i == 0 {
			put.ours, put.theirs = way{do: put.ours.do}, way{do: put.theirs.do}
			get.ours, get.theirs = way{do: get.ours.do}, way{do: get.theirs.do}
		}
	}
	if puts {
		put.print(n, size)
	}
	if gets {
		get.print(n, size)
	}
	return errors.Join(b.tier.Delete(ctx, ours), b.tier.Delete(ctx, theirs))
}
