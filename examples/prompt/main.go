package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	chunkTokens = 256
	chunkBytes  = 64 << 10 // of KV; a real model has megabytes
)

// space is everything beside the tokens that the bytes of a chunk depend on. An
// engine with another model, dtype or layout must name another space.
var space = key.Space{
	Model: "example-model", World: 1, DType: "uint8/example",
	ChunkTokens: chunkTokens, Method: key.SHA256,
}

func main() {
	socket := flag.String("socket", os.Getenv("KVSTORED_SOCKET"), "of the daemon; $KVSTORED_SOCKET if not given")
	n := flag.Int("tokens", 1024, "length of the prompt")
	flag.Parse()
	loaded, computed, err := run(*socket, prompt(*n))
	if err != nil {
		fmt.Fprintln(os.Stderr, "prompt:", err)
		os.Exit(1)
	}
	fmt.Printf("%d chunks loaded, %d computed and stored\n", loaded, computed)
}

// run is one request of an engine.
func run(socket string, tokens []uint32) (loaded, computed int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.Dial(ctx, socket, client.Options{Name: "example", Space: &space})
	if err != nil {
		return 0, 0, err
	}
	defer c.Close()
	kv := make([][]byte, len(tokens)/chunkTokens) // where the engine keeps it
	if loaded, err = load(ctx, c, tokens, kv); err != nil {
		return 0, 0, err
	}
	for i := loaded; i < len(kv); i++ {
		kv[i] = compute(tokens, i)
	}
	return loaded, len(kv) - loaded, store(ctx, c, tokens, kv, loaded)
}

// load copies the stored prefix of a prompt and returns its length in chunks.
// Where anything is missing, late or broken that is a shorter prefix.
func load(ctx context.Context, c *client.Client, tokens []uint32, kv [][]byte) (int, error) {
	job, err := c.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{})
	if err != nil {
		return 0, err
	}
	state, err := job.Wait(ctx, client.All)
	if err != nil {
		return 0, errors.Join(err, job.Release(ctx))
	}
	loaded := min(int(state.Ready.Chunks), len(kv))
	for i := range loaded {
		kv[i] = make([]byte, chunkBytes)
		if _, err := job.Copy(ctx, kv[i], i); err != nil {
			return 0, errors.Join(err, job.Release(ctx))
		}
	}
	if job.Release(ctx) != nil { // the lease did not hold: the copies may be of other chunks
		return 0, nil
	}
	for i := range loaded { // an engine trusts them; the daemon verifies checksums
		if !bytes.Equal(kv[i], compute(tokens, i)) {
			return 0, fmt.Errorf("chunk %d has other bytes than were stored", i)
		}
	}
	return loaded, nil
}

// store offers chunks from first on. An engine only counts an error here: a
// chunk that is not stored is computed again.
func store(ctx context.Context, c *client.Client, tokens []uint32, kv [][]byte, first int) error {
	if first == len(kv) {
		return nil
	}
	o := client.ReserveOptions{First: first, Count: len(kv) - first, Size: chunkBytes}
	_, err := c.Store(ctx, client.Tokens(tokens), o, nil, func(i int, dst []byte) error {
		client.CopyTo(dst, kv[first+i]) // dst is the daemon's memory
		return nil
	})
	return err
}

// compute stands for the prefill of chunk i.
func compute(tokens []uint32, i int) []byte {
	kv := make([]byte, chunkBytes)
	for at := range kv {
		kv[at] = byte(tokens[i*chunkTokens+at%chunkTokens] + uint32(at/chunkTokens))
	}
	return kv
}

// prompt is a made-up one.
func prompt(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i * i)
	}
	return tokens
}
