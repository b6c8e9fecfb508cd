package demo

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// storeWait is how long a reserve may wait for room, and for the disk to catch
// up: the engine makes its payloads up, faster than any disk writes.
const storeWait = 30 * time.Second

// engine plays prompts over one connection as an inference engine would. A payload
// follows from its key, so that any process knows each byte of it.
type engine struct {
	client  *client.Client
	builder *key.Builder
	chain   key.Chain
	want    []byte // a payload, as it must be
}

// played is what became of one prompt.
type played struct {
	tokens, chunks int
	tiers          client.TierCounts // where its verified prefix was found
	read, wrong    int               // chunks that were compared, those with a wrong byte
	stored         int               // chunks
	lookup, ready  time.Duration     // until the daemon said what is there, until that could be read
}

func dial(ctx context.Context, socket string) (*engine, error) {
	space := key.Space{Model: "demo", World: 1, DType: "generated", ChunkTokens: ChunkTokens, Method: key.SHA256}
	b, err := key.NewBuilder(space)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, socket, client.Options{Name: "demo engine", Space: &space})
	if err != nil {
		return nil, err
	}
	return &engine{client: c, builder: b, want: make([]byte, PayloadBytes)}, nil
}

// play asks for a prompt, waits for its ready prefix, compares every byte of it, stores
// the missing chunks, and gives the lease back.
func (e *engine) play(ctx context.Context, tokens []uint32) (p played, err error) {
	if err := e.builder.Tokens(&e.chain, tokens, key.Options{}); err != nil {
		return p, err
	}
	p.tokens, p.chunks = len(tokens), e.chain.Len()
	start := time.Now()
	job, err := e.client.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{Policy: client.WaitComplete})
	p.lookup = time.Since(start)
	if err != nil {
		return p, err
	}
	state, err := job.Wait(ctx, client.All)
	p.ready = time.Since(start)
	if err != nil {
		return p, err
	}
	p.tiers = state.Tiers
	if err := e.compare(ctx, job, int(state.Ready.Chunks), &p); err != nil {
		return p, err
	}
	if err := e.store(ctx, job, int(state.Ready.Chunks), &p); err != nil { // under the lease, so that its beginning stays
		return p, err
	}
	err = job.Release(ctx)
	if errors.Is(err, client.ErrRevoked) { // what was read may have been overwritten meanwhile
		p.tiers, p.read, p.wrong, err = client.TierCounts{}, 0, 0, nil
	}
	return p, err
}

// compare compares the first chunks of a prompt, each with the payload of its key.
func (e *engine) compare(ctx context.Context, job *client.Job, chunks int, p *played) error {
	for i := range chunks {
		got, err := job.Chunk(ctx, i)
		if errors.Is(err, client.ErrRevoked) {
			return nil // Release says so too
		}
		if err != nil {
			return err
		}
		fill(e.want, e.chain.Key(i))
		p.read++
		if !bytes.Equal(got, e.want) {
			p.wrong++
		}
	}
	return nil
}

// store stores the chunks from one on, as many at a time as the daemon grants.
func (e *engine) store(ctx context.Context, job *client.Job, first int, p *played) error {
	for next := first; next < min(job.Match().Worth, e.chain.Len()); {
		slots, err := e.client.Reserve(ctx, job.Prompt(), client.ReserveOptions{First: next, Size: PayloadBytes, Wait: storeWait})
		if noRoom(err) || err == nil && slots.Len() == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		granted := false
		for i := range slots.Len() {
			if slots.Status(i) == client.Granted {
				granted = true
				fill(slots.Bytes(i), e.chain.Key(next+i))
			}
		}
		if next += slots.Len(); !granted {
			continue
		}
		results, err := slots.Commit(ctx)
		if err != nil {
			return err
		}
		for i, r := range results {
			switch {
			case slots.Status(i) != client.Granted:
			case r.Code == client.ResultStored:
				p.stored++
			case r.Code == client.ResultDiffers:
				p.wrong++
			}
		}
	}
	return nil
}

func noRoom(err error) bool {
	return errors.Is(err, client.ErrOverBudget) || errors.Is(err, client.ErrNoSpace) || errors.Is(err, client.ErrDeclined)
}

// fill makes the payload of a key.
func fill(payload []byte, k key.Key) {
	var seed [32]byte
	copy(seed[:], k.Space[:])
	copy(seed[16:], k.Hash[:])
	rand.NewChaCha8(seed).Read(payload)
}
