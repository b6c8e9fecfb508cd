package daemon

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/key"
)

// readSpaces are spaces of these tests: of tokens, two methods and a salt, and of hashes.
func readSpaces() []key.Space {
	var out []key.Space
	for _, m := range []key.Method{key.SHA256, key.XXH64, "given:test"} {
		out = append(out, key.Space{Model: "m", World: 1, DType: "u8", ChunkTokens: 4, Method: m, Tags: []key.Tag{{Name: "a", Value: "b"}}})
	}
	out[0].Salt = "s"
	return out
}

// reader is a connection of these tests.
func reader(t testing.TB, cfg *config.Config, s key.Space, o client.Options) *client.Client {
	t.Helper()
	o.Space = &s
	c, err := client.Dial(t.Context(), cfg.Listen.Socket, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// prompts makes prompts of n chunks, whose last may be short, in the forms that a space takes.
func promptOf(c *client.Client, s key.Space, seed uint64, n int, unfull bool) client.Prompt {
	size := c.Space().ChunkTokens()
	last := size
	if unfull {
		last = 1
	}
	if !s.Method.IsGiven() {
		tokens := make([]uint32, (n-1)*size+last)
		for i := range tokens {
			tokens[i] = uint32(seed)<<8 + uint32(i)
		}
		p := client.Tokens(tokens)
		p.SaveUnfull = unfull
		return p
	}
	var raw []byte
	lengths := make([]uint32, n)
	for i := range lengths {
		raw = binary.LittleEndian.AppendUint64(raw, seed<<16+uint64(i)+1)
		lengths[i] = uint32(size)
	}
	lengths[n-1] = uint32(last)
	p := client.Hashes(8, raw, lengths)
	p.SaveUnfull = unfull
	return p
}

// payloadOf is the chunk i of a prompt as it was stored for the version-th time.
func payloadOf(seed uint64, i int, version uint64, size int) []byte {
	p := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, uint64(i)<<32|version))
	for at := 0; at < size; at += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], r.Uint64())
		copy(p[at:], w[:])
	}
	return p
}

// storeRun stores chunks from first on of a prompt.
func storeRun(t testing.TB, c *client.Client, p client.Prompt, seed uint64, first, n, size int, version uint64) {
	t.Helper()
	f, err := c.Reserve(t.Context(), p, client.ReserveOptions{First: first, Count: n, Size: size, Wait: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.Len() {
		if f.Status(i) == client.Granted {
			f.Write(i, payloadOf(seed, first+i, version, size))
		}
	}
	if _, err := f.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// readAll reads a prompt.
func readAll(ctx context.Context, c *client.Client, p client.Prompt, o client.ReadOptions) (out [][]byte, err error) {
	n, err := client.Read(ctx, c, p, o, func(i, size int) []byte {
		for len(out) <= i {
			out = append(out, nil)
		}
		out[i] = make([]byte, size+i%3) // longer is as good
		return out[i][:size+i%3]
	})
	for i := range min(n, len(out)) {
		out[i] = out[i][:len(out[i])-i%3]
	}
	return out[:n], err
}

// leaseAll is readAll by a prefetch, as every client did before.
func leaseAll(t *testing.T, c *client.Client, p client.Prompt) (out [][]byte) {
	t.Helper()
	j, err := c.Prefetch(t.Context(), p, client.PrefetchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := j.Wait(t.Context(), client.All)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int(s.Ready.Chunks) {
		n, _, err := j.Size(i)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, n)
		if _, err := j.Copy(t.Context(), dst, i); err != nil {
			t.Fatal(err)
		}
		out = append(out, dst)
	}
	if err := j.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out
}

func same(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// TestReadIsPrefetchCopyRelease: a read has the chunks and bytes that a lease has, whether
// they are in DRAM, on disk, deleted, short or never stored, by each kind of connection.
func TestReadIsPrefetchCopyRelease(t *testing.T) {
	cfg := smallConfig(t)
	serve(t, cfg)
	r := rand.New(rand.NewPCG(1, 2))
	for si, s := range readSpaces() {
		mapped := reader(t, &cfg, s, client.Options{})
		inline := reader(t, &cfg, s, client.Options{Inline: true})
		for k := range 24 {
			seed, n, unfull := uint64(100*si+k+1), 1+r.IntN(6), r.IntN(3) == 0
			p := promptOf(mapped, s, seed, n, unfull)
			if stored := r.IntN(n + 1); stored > 0 {
				storeRun(t, mapped, p, seed, 0, stored, 1+r.IntN(64<<10), 0)
			}
			if r.IntN(3) == 0 { // other prompts push it out of DRAM
				if _, err := mapped.Flush(t.Context(), false); err != nil {
					t.Fatal(err)
				}
				storeRun(t, mapped, promptOf(mapped, s, seed+5000, 40, false), seed+5000, 0, 40, 400<<10, 0)
			}
			if r.IntN(5) == 0 {
				part := p
				part.SkipChunks = r.IntN(n)
				if _, err := mapped.DeletePrompt(t.Context(), part); err != nil {
					t.Fatal(err)
				}
			}
			p.SkipChunks = r.IntN(min(n, 2))
			first, err := readAll(t.Context(), mapped, p, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			again, err := readAll(t.Context(), mapped, p, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			over, err := readAll(t.Context(), inline, p, client.ReadOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if want := leaseAll(t, mapped, p); !same(first, want) || !same(again, want) || !same(over, want) {
				t.Fatalf("%s, prompt %d of %d chunks: read %d, again %d, inline %d, leased %d, or other bytes", s.Method, k, n, len(first), len(again), len(over), len(want))
			}
		}
	}
}

// TestReadUnasked: chunks in DRAM are read without a request, in each kind of space, and the
// daemon is told.
func TestReadUnasked(t *testing.T) {
	cfg := smallConfig(t)
	d := serve(t, cfg)
	for _, s := range readSpaces() {
		c := reader(t, &cfg, s, client.Options{})
		p := promptOf(c, s, 7, 3, true)
		storeRun(t, c, p, 7, 0, 3, 5000, 0)
		if err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		before, begun := d.server.Stats(), time.Now()
		const reads = 65
		for range reads {
			if got, err := readAll(t.Context(), c, p, client.ReadOptions{}); err != nil || len(got) != 3 {
				t.Fatalf("%s: %d chunks, %v", s.Method, len(got), err)
			}
		}
		if err := c.Ping(t.Context()); err != nil { // takes what was not told along
			t.Fatal(err)
		}
		after := d.server.Stats()
		if n := after.HitChunks[0] - before.HitChunks[0]; n != 3*reads || after.Prefetches-before.Prefetches != reads {
			t.Errorf("%s: %d hits and %d prefetches after %d reads of 3 chunks", s.Method, n, after.Prefetches-before.Prefetches, reads)
		}
		took := time.Since(begun)
		if n := after.Requests - before.Requests; n > 4+uint64(took/time.Second) { // a read that was not told for a second is told
			t.Errorf("%s: %d requests for %d reads in %v", s.Method, n, reads, took)
		}
	}
}

// TestReadTellsAtTheEnd: what was not told is told when the client closes.
func TestReadTellsAtTheEnd(t *testing.T) {
	cfg := smallConfig(t)
	d := serve(t, cfg)
	s := readSpaces()[2]
	c := reader(t, &cfg, s, client.Options{})
	p := promptOf(c, s, 7, 2, false)
	storeRun(t, c, p, 7, 0, 2, 5000, 0)
	if _, err := readAll(t.Context(), c, p, client.ReadOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for end := time.Now().Add(time.Minute); d.server.Stats().HitChunks[0] != 2; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%+v", d.server.Stats().HitChunks)
		}
	}
}

// TestReadWrongInputs: what a caller gets wrong is an error, and costs nothing but the read.
func TestReadWrongInputs(t *testing.T) {
	cfg := smallConfig(t)
	serve(t, cfg)
	s := readSpaces()[2]
	for name, o := range map[string]client.Options{"mapped": {}, "inline": {Inline: true}} {
		c := reader(t, &cfg, s, o)
		p := promptOf(c, s, 9, 3, false)
		storeRun(t, c, p, 9, 0, 3, 5000, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		skip, grain := p, p
		skip.SkipChunks, grain.Grain = 4, 3
		good := func(_, size int) []byte { return make([]byte, size) }
		for what, read := range map[string]func() (int, error){
			"no function": func() (int, error) { return client.Read(t.Context(), c, p, client.ReadOptions{}, nil) },
			"skip":        func() (int, error) { return client.Read(t.Context(), c, skip, client.ReadOptions{}, good) },
			"tokens": func() (int, error) {
				return client.Read(t.Context(), c, client.Tokens(make([]uint32, 8)), client.ReadOptions{}, good)
			},
			"hashes": func() (int, error) {
				return client.Read(t.Context(), c, client.Hashes(8, make([]byte, 7), []uint32{4}), client.ReadOptions{}, good)
			},
			"an ended ctx": func() (int, error) { return client.Read(ctx, c, p, client.ReadOptions{}, good) },
			"too short": func() (int, error) {
				return client.Read(t.Context(), c, p, client.ReadOptions{}, func(_, size int) []byte { return make([]byte, size-1) })
			},
			"a strange tier": func() (int, error) {
				return client.Read(t.Context(), c, client.Prompt{}, client.ReadOptions{Search: 64}, good)
			},
		} {
			n, err := read()
			if err == nil || n != 0 {
				t.Errorf("%s, %s: %d chunks, %v", name, what, n, err)
			}
			if what == "too short" && !errors.Is(err, io.ErrShortBuffer) || what == "an ended ctx" && !errors.Is(err, context.Canceled) {
				t.Errorf("%s, %s: %v", name, what, err)
			}
		}
		n, err := client.Read(t.Context(), c, p, client.ReadOptions{}, func(i, size int) []byte {
			if i == 2 {
				return nil
			}
			return make([]byte, size)
		})
		if n != 2 || err != nil {
			t.Errorf("%s: %d chunks, %v, of a read that ends before the third", name, n, err)
		}
		if n, err := client.Read(t.Context(), c, p, client.ReadOptions{Search: client.Disk}, good); err != nil || n > 3 {
			t.Errorf("%s: by disk: %d chunks, %v", name, n, err)
		}
		c.Close()
		if n, err := client.Read(t.Context(), c, p, client.ReadOptions{}, good); n != 0 || !errors.Is(err, client.ErrClosed) {
			t.Errorf("%s: %d chunks, %v, when it is closed", name, n, err)
		}
	}
}

// TestReadUnderChurn: while chunks are evicted, deleted and stored with other bytes, readers
// see only bytes that a chunk had, and never those of before a deletion that was answered.
func TestReadUnderChurn(t *testing.T) {
	cfg := smallConfig(t)
	serve(t, cfg)
	s := readSpaces()[2]
	const prompts, chunks, size = 12, 4, 96 << 10
	var versions [prompts]atomic.Uint64 // the least that may be read
	var all sync.WaitGroup
	writer := reader(t, &cfg, s, client.Options{})
	var read, lost atomic.Uint64
	begun := time.Now()
	goesOn := func() bool { // for half a second, and until something was read
		took := time.Since(begun)
		return !t.Failed() && (took < time.Second/2 || read.Load() == 0 && took < time.Minute)
	}
	for k := range 3 {
		c := reader(t, &cfg, s, client.Options{})
		r := rand.New(rand.NewPCG(uint64(k), 5))
		all.Go(func() {
			for goesOn() {
				seed := r.IntN(prompts)
				least := versions[seed].Load()
				got, err := readAll(t.Context(), c, promptOf(c, s, uint64(seed), chunks, false), client.ReadOptions{})
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				for i, b := range got {
					v := binary.LittleEndian.Uint64(b)
					if want := churned(uint64(seed), i, v, size); v < least || !bytes.Equal(b, want) {
						t.Errorf("chunk %d of prompt %d: version %d after %d was deleted, or wrong bytes", i, seed, v, least)
						return
					}
				}
				read.Add(uint64(len(got)))
				lost.Add(uint64(chunks - len(got)))
			}
		})
	}
	r := rand.New(rand.NewPCG(9, 9))
	for n := uint64(0); goesOn(); n++ {
		seed := r.IntN(prompts)
		p := promptOf(writer, s, uint64(seed), chunks, false)
		if _, err := writer.DeletePrompt(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		version := n + 1
		versions[seed].Store(version)
		f, err := writer.Reserve(t.Context(), p, client.ReserveOptions{Size: size})
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Len() {
			if f.Status(i) == client.Granted {
				f.Write(i, churned(uint64(seed), i, version, size))
			}
		}
		if _, err := f.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n%4 == 0 { // of no interest, so that DRAM is short
			storeRun(t, writer, promptOf(writer, s, 1000+n, 8, false), 1000+n, 0, 8, 512<<10, 0)
		}
	}
	all.Wait()
	if read.Load() == 0 {
		t.Error("nothing was read")
	}
	t.Logf("%d chunks were read, %d were not there", read.Load(), lost.Load())
}

// churned is a payload that begins with its version.
func churned(seed uint64, i int, version uint64, size int) []byte {
	p := payloadOf(seed, i, version, size)
	binary.LittleEndian.PutUint64(p, version)
	return p
}

// TestReadWhileClosing: a client that closes in the middle of reads faults nowhere.
func TestReadWhileClosing(t *testing.T) {
	cfg := smallConfig(t)
	serve(t, cfg)
	s := readSpaces()[2]
	for range 8 {
		c := reader(t, &cfg, s, client.Options{})
		p := promptOf(c, s, 3, 4, false)
		storeRun(t, c, p, 3, 0, 4, 512<<10, 0)
		var all sync.WaitGroup
		begun := make(chan struct{}, 2)
		for range 2 {
			all.Go(func() {
				for n := 0; ; n++ {
					got, err := readAll(t.Context(), c, p, client.ReadOptions{})
					for i, b := range got {
						if !bytes.Equal(b, payloadOf(3, i, 0, 512<<10)) {
							t.Errorf("wrong bytes beside %v", err)
						}
					}
					if n == 0 {
						begun <- struct{}{}
					}
					if err != nil {
						if !errors.Is(err, client.ErrClosed) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		<-begun
		<-begun
		c.Close()
		all.Wait()
	}
}
