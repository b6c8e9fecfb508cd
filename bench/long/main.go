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

const putWait = time.Minute

func main() {
	socket := flag.String("socket", os.Getenv("KVSTORED_SOCKET"), "of the daemon")
	dram := flag.Int("dram", 256, "MiB of DRAM that the daemon has")
	times := flag.Int("times", 20, "how many times DRAM the prompt is")
	size := flag.Int("chunk", 1<<20, "bytes of a chunk")
	pause := flag.Duration("pause", 2*time.Millisecond, "between the small prompts")
	disk := flag.String("disk", ".", "folder on the disk of the daemon, for a file to set it beside")
	floorMiB := flag.Int("floor", 1024, "MiB of that file")
	small := flag.Bool("small", false, "be the client of the small prompts; for the bench itself")
	flag.Parse()
	ctx := context.Background()
	b := &bench{payload: make([]byte, *size), chunks: *times * *dram << 20 / *size}
	err := b.dial(ctx, *socket)
	switch {
	case err != nil:
	case *small:
		err = serveSmall(ctx, b.long, os.Stdin, os.Stdout, *pause)
	default:
		err = b.run(ctx, *socket, *disk, *floorMiB, *pause)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "long:", err)
		os.Exit(1)
	}
}

// bench is the client of the long prompt and its payloads.
type bench struct {
	long    *client.Client
	prompt  client.Prompt
	chunks  int
	payload []byte // of every chunk, but for its number at both ends
}

func (b *bench) dial(ctx context.Context, socket string) (err error) {
	space := key.Space{Model: "bench/long", World: 1, DType: "u8", ChunkTokens: 1, Method: key.SHA256, Salt: fmt.Sprint(time.Now().UnixNano())}
	b.long, err = client.Dial(ctx, socket, client.Options{Space: &space})
	return err
}

func (b *bench) run(ctx context.Context, socket, disk string, floorMiB int, pause time.Duration) error {
	defer b.long.Close()
	rand.NewChaCha8([32]byte{1}).Read(b.payload) // never fails
	b.prompt = client.Tokens(sequence(0, b.chunks))
	f, err := newFloor(disk, floorMiB)
	if err != nil {
		return err
	}
	defer f.file.Close()
	small, err := startSmall(socket, pause)
	if err != nil {
		return err
	}
	return errors.Join(b.measure(ctx, f, small), small.stop())
}

// sequence is tokens that no other prompt of this bench begins with.
func sequence(prompt, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(prompt<<24 + i)
	}
	return out
}

func (b *bench) measure(ctx context.Context, f *floor, small *smallClient) error {
	if err := f.beside(ctx, "stored", f.write, b.rate(func() error { return b.store(ctx) })); err != nil {
		return err
	}
	read := b.rate(func() error { return b.read(ctx) })
	if err := f.beside(ctx, "read", f.read, read); err != nil {
		return err
	}
	alone, err := small.during(func() error { time.Sleep(smallSpan); return nil })
	if err != nil {
		return err
	}
	beside, err := small.during(func() error {
		rate, err := read()
		fmt.Printf("%-12s %6.0f MB/s\n", "read beside", rate/1e6)
		return err
	})
	report(alone, beside)
	return err
}

// rate is do with the bytes of the prompt that it has handled a second.
func (b *bench) rate(do func() error) func() (float64, error) {
	return func() (float64, error) {
		start := time.Now()
		err := do()
		return float64(b.chunks) * float64(len(b.payload)) / time.Since(start).Seconds(), err
	}
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
			return fmt.Errorf("%d of %d chunks came back: %s", n, b.chunks, p.Reason.String())
		}
	}
	if n != b.chunks {
		return fmt.Errorf("%d of %d chunks came back", n, b.chunks)
	}
	return nil
}
