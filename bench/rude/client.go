package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

var space = key.Space{Model: "rude", World: 1, DType: "none", ChunkTokens: 256, Method: "given:rude"}

const (
	promptChunks = 64
	payloadBytes = 4 << 10
	pace         = 500 * time.Microsecond // between calls
	warmup       = 20                     // calls that do not count
)

// seen is what a client saw.
type seen struct {
	P50, P99      float64 // us
	Bare50, Bare  float64 // us: p50 and p99 of a bare server's, in turns with these
	Calls, Failed int
}

// work is what a process of this program does instead of measuring.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	switch {
	case j.Echo:
		return serveEcho(j.Socket)
	case j.Attack != "":
		return assault(&j)
	}
	s, err := behave(context.Background(), &j)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(s)
}

// behave stores a prompt and asks for it again and again: a lookup, and one
// chunk. After each it asks the bare server.
func behave(ctx context.Context, j *job) (s seen, err error) {
	begin := time.Now()
	c, err := client.Dial(ctx, j.Socket, client.Options{Name: "client", Space: &space})
	for ; err != nil; c, err = client.Dial(ctx, j.Socket, client.Options{Name: "client", Space: &space}) {
		fmt.Fprintln(os.Stderr, "rude: the client:", err)
		s.Calls, s.Failed = s.Calls+1, s.Failed+1
		if time.Since(begin) > j.Span {
			return s, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer c.Close()
	p := prompt(rand.Uint64(), promptChunks)
	payloads := make([][]byte, promptChunks)
	for i := range payloads {
		payloads[i] = make([]byte, payloadBytes)
	}
	if _, err := c.Put(ctx, p, 0, payloads); err != nil {
		return s, err
	}
	bare, err := dialEcho(j.Socket)
	if err != nil {
		return s, err
	}
	var took, echoed []time.Duration
	for begin = time.Now(); time.Since(begin) < j.Span; time.Sleep(pace) {
		start := time.Now()
		s.Calls++
		err := ask(ctx, c, p, s.Calls)
		if d := time.Since(start); s.Calls > warmup {
			took = append(took, d)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "rude: the client:", err)
			s.Failed++
		}
		time.Sleep(pace)
		start = time.Now()
		if err := bare.call(); err != nil {
			return s, err
		}
		if d := time.Since(start); s.Calls > warmup {
			echoed = append(echoed, d)
		}
	}
	s.P50, s.P99 = percentiles(took)
	s.Bare50, s.Bare = percentiles(echoed)
	return s, nil
}

// ask makes the i-th call.
func ask(ctx context.Context, c *client.Client, p client.Prompt, i int) error {
	if i%2 == 0 {
		m, err := c.Lookup(ctx, p, 0)
		if err == nil && m.Total.Chunks != promptChunks {
			err = fmt.Errorf("%d chunks of %d are there", m.Total.Chunks, promptChunks)
		}
		return err
	}
	chunks, err := c.Get(ctx, p, client.GetOptions{First: i % promptChunks, MaxChunks: 1})
	if err == nil && len(chunks) != 1 {
		err = errors.New("a chunk is missing")
	}
	return err
}

// percentiles are the median and the p99 in us, 0 of none.
func percentiles(took []time.Duration) (p50, p99 float64) {
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	us := func(d time.Duration) float64 { return float64(d) / 1e3 }
	return us(took[len(took)/2]), us(took[len(took)*99/100])
}

// prompt is so many chunks of a prompt that no other client has.
func prompt(seed uint64, chunks int) client.Prompt {
	return client.Hashes(16, hashes(seed, chunks), lengths(chunks))
}

func hashes(seed uint64, n int) []byte {
	out := make([]byte, 0, 16*n)
	for i := range n {
		out = binary.LittleEndian.AppendUint64(out, seed)
		out = binary.LittleEndian.AppendUint64(out, uint64(i)+1)
	}
	return out
}

func lengths(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(space.ChunkTokens)
	}
	return out
}
