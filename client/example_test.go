package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// space is what a payload depends on, beside the tokens.
var space = key.Space{
	Model: "org/model-8b", World: 1, DType: "bfloat16/paged-16",
	ChunkTokens: 256, Method: key.SHA256,
}

// An engine asks for the prefix of a prompt, computes the chunks behind it, and
// stores them. The next prompt that begins in the same way finds them.
func Example() {
	socket, stop := exampleDaemon() // elsewhere: where the daemon listens
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, socket, client.Options{Space: &space})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	for _, question := range []uint32{7, 8} {
		tokens := append(systemPrompt(), question) // 512 tokens, and one that differs
		if err := answer(ctx, c, tokens); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// loaded 0 tokens, stored 2 chunks
	// loaded 512 tokens, stored 0 chunks
}

// answer does what an engine does with one prompt.
func answer(ctx context.Context, c *client.Client, tokens []uint32) error {
	job, err := c.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{})
	if err != nil {
		return err
	}
	state, err := job.Wait(ctx, client.All)
	if err != nil {
		return err
	}
	have := int(state.Ready.Chunks)
	for i := range have {
		payload := make([]byte, payloadBytes) // where the engine keeps its KV
		if _, err := job.Copy(ctx, payload, i); err != nil {
			return err
		}
	}
	if err := job.Release(ctx); err != nil {
		have = 0 // the lease did not hold: forget what was copied
	}

	const chunks = 2 // whole ones of the prompt
	if have < chunks {
		o := client.ReserveOptions{First: have, Count: chunks - have, Size: payloadBytes}
		_, err = c.Store(ctx, client.Tokens(tokens), o, nil, func(i int, dst []byte) error {
			compute(dst, tokens, have+i)
			return nil
		})
		if err != nil {
			return err
		}
	}
	fmt.Printf("loaded %d tokens, stored %d chunks\n", 256*have, chunks-have)
	return nil
}

// Without shared memory, as across a container's boundary, payloads go over the
// socket. A missing chunk makes the answer shorter and is no error.
func ExampleClient_Get() {
	socket, stop := exampleDaemon()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, socket, client.Options{Space: &space, Inline: true})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	prompt := client.Tokens(systemPrompt())
	if _, err := c.Put(ctx, prompt, 0, [][]byte{[]byte("the KV of 256 tokens")}); err != nil {
		log.Fatal(err)
	}
	chunks, err := c.Get(ctx, prompt, client.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, chunk := range chunks {
		fmt.Printf("%d tokens: %s\n", chunk.Tokens, chunk.Bytes)
	}
	// Output:
	// 256 tokens: the KV of 256 tokens
}

// A scheduler asks how much of a prompt is there before it decides when to run
// it. Lookup moves nothing and holds nothing.
func ExampleClient_Lookup() {
	socket, stop := exampleDaemon()
	defer stop()
	ctx := context.Background()
	c, err := client.Dial(ctx, socket, client.Options{Space: &space})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()

	prompt := client.Tokens(systemPrompt())
	if _, err := c.Put(ctx, prompt, 0, [][]byte{{1}}); err != nil {
		log.Fatal(err)
	}
	match, err := c.Lookup(ctx, prompt, 0) // in all tiers
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d of 512 tokens are stored\n", match.Total.Tokens)
	// Output:
	// 256 of 512 tokens are stored
}

// A daemon that is not there is an error. An engine goes on without its cache.
func ExampleDial() {
	_, err := client.Dial(context.Background(), "/nonexistent/kvstored.sock", client.Options{})
	if errors.Is(err, fs.ErrNotExist) {
		fmt.Println("no daemon: every prompt is computed whole")
	}
	// Output:
	// no daemon: every prompt is computed whole
}
