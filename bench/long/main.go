// Command long stores a prompt many times as long as the DRAM of a running
// daemon through one client, reads it back and compares every byte, and
// measures what another client's small prompts wait meanwhile.
//
//	go run ./bench/long -socket /run/kvstored/kvstored.sock -dram 256 -times 20
//
// Set its read beside fio, or beside what bench/disk measures on that disk.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	smallChunks = 4
	smallBytes  = 64 << 10
	smallCount  = 16 // prompts that the other client goes through
	putWait     = time.Minute
)

func main() {
	socket := flag.String("socket", os.Getenv("KVSTORED_SOCKET"), "of the daemon")
	dram := flag.Int("dram", 256, "MiB of DRAM that the daemon has")
	times := flag.Int("times", 20, "how many times DRAM the prompt is")
	size := flag.Int("chunk", 1<<20, "bytes of a chunk")
	pause := flag.Duration("pause", 2*time.Millisecond, "between the small prompts")
	flag.Parse()
	if err := run(context.Background(), *socket, *dram, *times, *size, *pause); err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
		os.Exit(1)
	}
}

// bench is the two clients and what they store.
type bench struct {
	long, small *client.Client
	prompt      client.Prompt
	chunks      int
	payload     []byte // of every chunk, but for its number at both ends
	pause       time.Duration
}

func run(ctx context.Context, socket string, dram, times, size int, pause time.Duration) error {
	b := &bench{payload: make([]byte, size), pause: pause}
	rand.NewChaCha8([32]byte{1}).Read(b.payload) // never fails
	for _, c := range []**client.Client{&b.long, &b.small} {
		var err error
		space := key.Space{Model: "bench/long", World: 1, DType: "u8", ChunkTokens: 1, Method: key.SHA256, Salt: fmt.Sprint(time.Now().UnixNano())}
		if *c, err = client.Dial(ctx, socket, client.Options{Space: &space}); err != nil {
			return err
		}
		defer (*c).Close()
	}
	b.chunks = times * dram << 20 / size
	b.prompt = client.Tokens(sequence(0, b.chunks))
	return b.measure(ctx)
}

// sequence is tokens that no other prompt of this bench begins with.
func sequence(prompt, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(prompt<<24 + i)
	}
	return out
}

func (b *bench) measure(ctx context.Context) error {
	if err := b.timed("stored", func() error { return b.store(ctx) }); err != nil {
		return err
	}
	if err := b.timed("read", func() error { return b.read(ctx) }); err != nil {
		return err
	}
	for p := range smallCount {
		if err := b.storeSmall(ctx, p+1); err != nil {
			return err
		}
	}
	over := make(chan struct{})
	time.AfterFunc(5*time.Second, func() { close(over) })
	alone, err := b.waits(ctx, over)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		failed = b.timed("read beside", func() error { return b.read(ctx) })
	}()
	beside, err := b.waits(ctx, done)
	<-done
	report("small alone", alone)
	report("small beside", beside)
	return errors.Join(err, failed)
}

func (b *bench) timed(what string, do func() error) error {
	start := time.Now()
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	took := time.Since(start)
	mb := float64(b.chunks) * float64(len(b.payload)) / 1e6
	fmt.Printf("%-12s %8.0f MB in %6.2f s: %6.0f MB/s\n", what, mb, took.Seconds(), mb/took.Seconds())
	return nil
}

func (b *bench) store(ctx context.Context) error {
	o := client.ReserveOptions{Count: b.chunks, Size: len(b.payload), Wait: putWait}
	_, err := b.long.Store(ctx, b.prompt, o, nil, func(i int, dst []byte) error {
		copy(dst, b.payload)
		stamp(dst, i)
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_, err = b.long.Flush(ctx, false)
	return err
}

// stamp puts the number of a chunk at both ends of its payload.
func stamp(p []byte, i int) {
	binary.LittleEndian.PutUint64(p, uint64(i))
	binary.LittleEndian.PutUint64(p[len(p)-8:], uint64(i))
}

// read compares all that comes back.
func (b *bench) read(ctx context.Context) error {
	n, want := 0, slices.Clone(b.payload)
	for p, err := range b.long.Pieces(ctx, b.prompt, client.PrefetchOptions{Policy: client.WaitComplete}) {
		if err != nil {
			return err
		}
		for i, got := range p.Chunks {
			if stamp(want, p.First+i); !bytes.Equal(got, want) {
				return fmt.Errorf("chunk %d came back with other bytes", p.First+i)
			}
		}
		if n += len(p.Chunks); p.Reason != client.StoppedOverBudget && n < b.chunks {
			return fmt.Errorf("%d of %d chunks came back: %s", n, b.chunks, p.Reason)
		}
	}
	if n != b.chunks {
		return fmt.Errorf("%d of %d chunks came back", n, b.chunks)
	}
	return nil
}

func (b *bench) storeSmall(ctx context.Context, p int) error {
	o := client.ReserveOptions{Count: smallChunks, Size: smallBytes, Wait: putWait}
	_, err := b.small.Store(ctx, client.Tokens(sequence(p, smallChunks)), o, nil, func(i int, dst []byte) error {
		stamp(dst, i)
		return nil
	})
	return err
}

// waits gets small prompts one after the other until done, and returns how long
// each took.
func (b *bench) waits(ctx context.Context, done <-chan struct{}) (took []time.Duration, err error) {
	for p := 0; ; p++ {
		select {
		case <-done:
			return took, nil
		case <-time.After(b.pause):
		}
		start := time.Now()
		n := 0
		for piece, err := range b.small.Pieces(ctx, client.Tokens(sequence(1+p%smallCount, smallChunks)), client.PrefetchOptions{Policy: client.WaitComplete}) {
			if err != nil {
				return took, err
			}
			n += len(piece.Chunks)
		}
		took = append(took, time.Since(start))
		if n != smallChunks {
			return took, fmt.Errorf("%d of %d chunks of a small prompt came back", n, smallChunks)
		}
	}
}

func report(what string, took []time.Duration) {
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(time.Microsecond) }
	fmt.Printf("%-12s %8d prompts: p50 %v, p99 %v\n", what, len(took), at(0.5), at(0.99))
}
