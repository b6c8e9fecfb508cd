package daemon

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/key"
)

// BenchmarkHandOver hands daemons over whose DRAM has so many chunks of 4,000 bytes, or of
// 64,000. What a client sees is the time between its last answer and the next. Both
// daemons are in this process, so that the garbage of one is the other's.
func BenchmarkHandOver(b *testing.B) {
	for _, c := range []struct{ chunks, size int }{{100_000, 4000}, {1_000_000, 4000}, {60_000, 64_000}} {
		b.Run(fmt.Sprintf("chunks=%d/bytes=%d", c.chunks, c.size), func(b *testing.B) { benchHandOver(b, c.chunks, c.size) })
	}
}

func benchHandOver(b *testing.B, chunks, size int) {
	cfg := smallConfig(b)
	cfg.Upgrade.HandOver, cfg.Disk.Capacity = true, 0
	cfg.CPU.Capacity, cfg.Limits.Chunks = config.Bytes(int64(chunks)*int64((size+4095)&^4095)*23/20), chunks*23/20
	run := func(takeOver bool) (*Daemon, context.CancelFunc, chan error) {
		d, err := New(cfg, Options{Log: zerolog.Nop(), TakeOver: takeOver})
		if err != nil {
			b.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		return d, stop, ended
	}
	_, stop, ended := run(false)
	defer func() { stop() }()
	fillDRAM(b, &cfg, chunks, size)
	var gaps []time.Duration
	for b.Loop() {
		stopped, gap := make(chan struct{}), make(chan time.Duration, 1)
		go func() { gap <- longestGap(b, &cfg, stopped) }()
		next, stopNext, endedNext := run(true)
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // the client is served again, and its gap is over
		close(stopped)
		gaps = append(gaps, <-gap)
		stop, ended = stopNext, endedNext
		if n := next.cpu.Stats().Entries; int(n) < chunks {
			b.Fatalf("%d of %d chunks", n, chunks)
		}
	}
	slices.Sort(gaps)
	b.ReportMetric(float64(gaps[len(gaps)/2].Microseconds())/1000, "ms/gap-median")
	b.ReportMetric(float64(gaps[len(gaps)-1].Microseconds())/1000, "ms/gap-longest")
	b.ReportMetric(0, "ns/op")
}

// longestGap asks without a pause until stopped, and returns the longest time without an
// answer.
func longestGap(b *testing.B, cfg *config.Config, stopped chan struct{}) (longest time.Duration) {
	var c *client.Client
	for last := time.Now(); ; {
		select {
		case <-stopped:
			c.Close()
			return longest
		default:
		}
		var err error
		if c == nil {
			c, err = client.Dial(b.Context(), cfg.Listen.Socket, client.Options{Space: &handSpace})
		}
		if err == nil {
			_, err = c.Lookup(b.Context(), client.Tokens(prompt(1, 1)), 0)
		}
		if err != nil {
			if c != nil {
				c.Close()
				c = nil
			}
			continue
		}
		longest = max(longest, time.Since(last))
		last = time.Now()
	}
}

// fillDRAM stores chunks of a size, 500 to a prompt.
func fillDRAM(b *testing.B, cfg *config.Config, chunks, size int) {
	b.Helper()
	space := handSpace
	space.Method = "given:bench"
	c, err := client.Dial(b.Context(), cfg.Listen.Socket, client.Options{Space: &space})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	const each = 500
	builder, err := key.NewBuilder(space)
	if err != nil {
		b.Fatal(err)
	}
	for n := range chunks / each {
		var raw []byte
		lengths, sizes := make([]uint32, each), make([]uint32, each)
		for i := range each {
			raw = binary.LittleEndian.AppendUint64(raw, uint64(n+1))
			raw = binary.LittleEndian.AppendUint64(raw, uint64(i+1))
			lengths[i], sizes[i] = uint32(space.ChunkTokens), uint32(size)
		}
		chain := new(key.Chain)
		if err := builder.Hashes(chain, 16, raw, lengths, key.Options{}); err != nil {
			b.Fatal(err)
		}
		for first := 0; first < each; {
			f, err := c.Reserve(b.Context(), client.Chain(chain), client.ReserveOptions{First: first, Sizes: sizes[first:], Wait: 10 * time.Second})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := f.Commit(b.Context()); err != nil {
				b.Fatal(err)
			}
			first += f.Len()
		}
	}
}
