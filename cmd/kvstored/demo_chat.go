package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// The size of a demo: DRAM is too small for the conversations, so that the disk
// has work, and both fit on a small machine.
const (
	demoDRAMBytes    = 256 << 20
	demoDiskBytes    = 2 << 30
	demoChunkTokens  = 256
	demoPayloadBytes = 768 << 10 // of every chunk
	systemTokens     = 1024      // of the prompt that all conversations begin with
)

// Bounds of a chat: users that fit into memory, and prompts that fit into DRAM.
const (
	mostUsers = 1_000_000
	mostTurns = 60
)

// storeWait is how long a reserve may wait for room, and for the disk to catch
// up: the engine makes its payloads up, faster than any disk writes.
const storeWait = 30 * time.Second

// demoOptions of a demo.
type demoOptions struct {
	Users, Turns           int // turns of each user
	Seed                   uint64
	PrefillTokensPerSecond float64 // speed at which an engine is assumed to compute prompts

	Socket string                                                 // where the daemon listens
	Start  func(context.Context) (chunks, bytes int64, err error) // returns when it is ready, and what it has on disk
	Stop   func(context.Context) error                            // as an operator would
	Step   func(what string)                                      // is told what begins now
	Played func(turn demoTurn)                                    // is told of each prompt that was played
}

// playDemo plays the first half, restarts the daemon and plays the second. Beside an
// error the daemon may still run.
func playDemo(ctx context.Context, o demoOptions) (*demoResult, error) {
	next, end := iter.Pull(o.all())
	defer end()
	n, r := o.Users*o.Turns, o.newResult()
	o.Step("starting a daemon")
	if _, _, err := o.Start(ctx); err != nil {
		return nil, err
	}
	o.Step("playing the first half")
	if err := o.half(ctx, next, n/2, &r.Before, &r.Total); err != nil {
		return nil, err
	}
	if err := o.restart(ctx, &r.Restart); err != nil {
		return nil, err
	}
	o.Step("playing the second half")
	if err := o.half(ctx, next, n-n/2, &r.After, &r.Total); err != nil {
		return nil, err
	}
	o.Step("stopping the daemon, which writes what is unwritten")
	if err := o.Stop(ctx); err != nil {
		return nil, err
	}
	r.finish()
	return r, nil
}

// restart ends the daemon and starts it again. All that it knows then comes from disk.
func (o *demoOptions) restart(ctx context.Context, r *demoRestart) (err error) {
	o.Step("stopping the daemon, which writes what is unwritten")
	begun := time.Now()
	if err := o.Stop(ctx); err != nil {
		return err
	}
	r.StopSeconds = time.Since(begun).Seconds()
	o.Step("starting it again, from disk alone")
	begun = time.Now()
	r.ChunksBack, r.BytesBack, err = o.Start(ctx)
	r.StartSeconds = time.Since(begun).Seconds()
	return err
}

// half plays n turns over one connection, as an engine would.
func (o *demoOptions) half(ctx context.Context, next func() (demoTurn, bool), n int, sums ...*demoSums) error {
	space := key.Space{Model: "demo", World: 1, DType: "generated", ChunkTokens: demoChunkTokens, Method: key.SHA256}
	b, err := key.NewBuilder(space)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, o.Socket, client.Options{Name: "demo engine", Space: &space})
	if err != nil {
		return err
	}
	defer c.Close()
	e, begun := demoEngine{client: c, builder: b, want: make([]byte, demoPayloadBytes)}, time.Now()
	for range n {
		turn, _ := next()
		played, err := e.play(ctx, turn.Tokens)
		if err != nil {
			return fmt.Errorf("user %d, turn %d: %w", turn.User+1, turn.Number+1, err)
		}
		for _, s := range sums {
			s.add(&played)
		}
		o.Played(turn)
	}
	for _, s := range sums {
		s.Seconds += time.Since(begun).Seconds()
	}
	return nil
}

// demoEngine plays prompts over one connection. A payload follows from its key, so that any
// process knows each byte of it.
type demoEngine struct {
	client  *client.Client
	builder *key.Builder
	chain   key.Chain
	want    []byte // a payload, as it must be
}

// demoPlayed is what became of one prompt.
type demoPlayed struct {
	tokens, chunks int
	tiers          client.TierCounts // where its verified prefix was found
	read, wrong    int               // chunks that were compared, those with a wrong byte
	stored         int               // chunks
	lookup, ready  time.Duration     // until the daemon said what is there, until that could be read
}

// play asks for a prompt, waits for its ready prefix, compares every byte of it, stores
// the missing chunks, and gives the lease back.
func (e *demoEngine) play(ctx context.Context, tokens []uint32) (p demoPlayed, err error) {
	if err := e.builder.Tokens(&e.chain, tokens, key.Options{}); err != nil {
		return p, err
	}
	p.tokens, p.chunks = len(tokens), e.chain.Len()
	begun := time.Now()
	job, err := e.client.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{Policy: client.WaitComplete})
	p.lookup = time.Since(begun)
	if err != nil {
		return p, err
	}
	state, err := job.Wait(ctx, client.All)
	p.ready, p.tiers = time.Since(begun), state.Tiers
	for i := 0; err == nil && i < int(state.Ready.Chunks); i++ {
		var got []byte
		if got, err = job.Chunk(ctx, i); err == nil {
			fill(e.want, e.chain.Key(i))
			p.read++
			if !bytes.Equal(got, e.want) {
				p.wrong++
			}
		}
	}
	if err == nil { // under the lease, so that its beginning stays
		err = e.store(ctx, job, int(state.Ready.Chunks), &p)
	}
	if err == nil {
		err = job.Release(ctx)
	}
	if errors.Is(err, client.ErrRevoked) { // what was read may have been overwritten meanwhile
		p.tiers, p.read, p.wrong, err = client.TierCounts{}, 0, 0, nil
	}
	return p, err
}

// store stores the chunks from one on that are worth it, as far as there is room.
func (e *demoEngine) store(ctx context.Context, job *client.Job, first int, p *demoPlayed) error {
	n := min(job.Match().Worth, e.chain.Len()) - first
	if n <= 0 {
		return nil
	}
	o := client.ReserveOptions{First: first, Count: n, Size: demoPayloadBytes, Wait: storeWait}
	results, err := e.client.Store(ctx, job.Prompt(), o, nil, func(i int, dst []byte) error {
		fill(dst, e.chain.Key(first+i))
		return nil
	})
	for _, r := range results {
		switch r.Code {
		case client.ResultStored:
			p.stored++
		case client.ResultDiffers:
			p.wrong++
		}
	}
	if errors.Is(err, client.ErrOverBudget) || errors.Is(err, client.ErrNoSpace) || errors.Is(err, client.ErrDeclined) {
		return nil
	}
	return err
}

// fill makes the payload of a key.
func fill(payload []byte, k key.Key) {
	var seed [32]byte
	copy(seed[:], k.Space[:])
	copy(seed[16:], k.Hash[:])
	rand.NewChaCha8(seed).Read(payload)
}

// demoResult is what demo --json prints.
type demoResult struct {
	Users        int         `json:"users"`
	Turns        int         `json:"turns"`
	SystemTokens int         `json:"system_prompt_tokens"`
	ChunkTokens  int         `json:"chunk_tokens"`
	PayloadBytes int         `json:"payload_bytes"`
	DRAMBytes    int64       `json:"dram_bytes"`
	Total        demoSums    `json:"total"`
	Before       demoSums    `json:"before_restart"`
	After        demoSums    `json:"after_restart"`
	Restart      demoRestart `json:"restart"`
	Saved        demoSaved   `json:"saved"`
}

// demoRestart is what stopping and starting the daemon took and brought.
type demoRestart struct {
	StopSeconds  float64 `json:"stop_seconds"` // with everything unwritten written
	StartSeconds float64 `json:"start_seconds"`
	ChunksBack   int64   `json:"chunks_back"` // known again, from disk alone
	BytesBack    int64   `json:"bytes_back"`
}

// demoSaved is what the hits were worth, at an assumed speed.
type demoSaved struct {
	Tokens                 int64   `json:"tokens"`
	PrefillTokensPerSecond float64 `json:"assumed_prefill_tokens_per_second"`
	PrefillSeconds         float64 `json:"prefill_seconds"`
	WaitedSeconds          float64 `json:"waited_seconds"` // for prefixes to be ready
}

// maxTimes is how many prompts percentiles are of, at most: the first ones.
const maxTimes = 1 << 20

// demoSums are of some prompts.
type demoSums struct {
	Requests     int              `json:"requests"`
	PromptTokens int64            `json:"total_prompt_tokens"`
	PromptChunks int64            `json:"block_accesses"`
	HitTokens    int64            `json:"total_hit_tokens"` // of verified prefixes
	HitChunks    int64            `json:"block_hits"`
	TierTokens   map[string]int64 `json:"hit_tokens"` // by the tier they were found in
	TierChunks   map[string]int64 `json:"hit_blocks"`
	Wrong        int64            `json:"mismatches"` // chunks with a wrong byte
	Stored       int64            `json:"stored_blocks"`
	BytesRead    int64            `json:"bytes_read"` // compared
	BytesWritten int64            `json:"bytes_written"`
	Seconds      float64          `json:"seconds"`
	GBPerSecond  float64          `json:"gb_per_second"` // read and written, 10^9 bytes
	LookupP50    float64          `json:"lookup_p50_us"`
	LookupP99    float64          `json:"lookup_p99_us"`
	ReadyP50     float64          `json:"ready_p50_us"`
	ReadyP99     float64          `json:"ready_p99_us"`

	waited         time.Duration
	lookups, ready []time.Duration
}

func (o *demoOptions) newResult() *demoResult {
	r := &demoResult{
		Users: o.Users, Turns: o.Turns, SystemTokens: systemTokens, ChunkTokens: demoChunkTokens, PayloadBytes: demoPayloadBytes, DRAMBytes: demoDRAMBytes,
		Saved: demoSaved{PrefillTokensPerSecond: o.PrefillTokensPerSecond},
	}
	for _, s := range []*demoSums{&r.Total, &r.Before, &r.After} {
		s.TierTokens, s.TierChunks = make(map[string]int64), make(map[string]int64)
	}
	return r
}

func (s *demoSums) add(p *demoPlayed) {
	s.Requests++
	s.PromptTokens += int64(p.tokens)
	s.PromptChunks += int64(p.chunks)
	for i, n := range p.tiers {
		s.HitTokens += int64(n.Tokens)
		s.HitChunks += int64(n.Chunks)
		s.TierTokens[tierNames[i]] += int64(n.Tokens)
		s.TierChunks[tierNames[i]] += int64(n.Chunks)
	}
	s.Wrong += int64(p.wrong)
	s.Stored += int64(p.stored)
	s.BytesRead += int64(p.read) * demoPayloadBytes
	s.BytesWritten += int64(p.stored) * demoPayloadBytes
	s.waited += p.ready
	if len(s.lookups) < maxTimes {
		s.lookups, s.ready = append(s.lookups, p.lookup), append(s.ready, p.ready)
	}
}

// finish fills in what follows from all prompts.
func (r *demoResult) finish() {
	for _, s := range []*demoSums{&r.Total, &r.Before, &r.After} {
		s.GBPerSecond = float64(s.BytesRead+s.BytesWritten) / 1e9 / max(s.Seconds, 1e-9)
		s.LookupP50, s.LookupP99 = percentiles(s.lookups)
		s.ReadyP50, s.ReadyP99 = percentiles(s.ready)
	}
	r.Saved.Tokens, r.Saved.WaitedSeconds = r.Total.HitTokens, r.Total.waited.Seconds()
	r.Saved.PrefillSeconds = float64(r.Total.HitTokens) / r.Saved.PrefillTokensPerSecond
}

// percentiles are the median and the 99th, in microseconds. It sorts the times.
func percentiles(times []time.Duration) (p50, p99 float64) {
	if len(times) == 0 {
		return 0, 0
	}
	slices.Sort(times)
	at := func(i int) float64 { return float64(times[i]) / float64(time.Microsecond) }
	return at((len(times) - 1) / 2), at((len(times) - 1) * 99 / 100)
}

// demoTurn is one prompt.
type demoTurn struct {
	User   int
	Number int      // of the user's turn, from 0
	Tokens []uint32 // borrowed: good until the next turn is asked for
}

// How people chat. The lengths are those of short questions with answers of a few
// paragraphs. Half of the prompts come from the users who spoke last.
const (
	vocabulary         = 128_000
	minSaid, maxSaid   = 60, 400
	minReply, maxReply = 150, 900
	activeUsers        = 6
	activeShare        = 0.5
)

// all yields every turn of every user, each user's in their order. They share a system
// prompt, and each prompt of a user is the one before, the answer to it, and what the user
// says next. Equal options yield equal turns.
func (o *demoOptions) all() iter.Seq[demoTurn] {
	return func(yield func(demoTurn) bool) {
		rng := rand.New(rand.NewPCG(o.Seed, 0))
		prompt := say(rng, nil, systemTokens)
		open := make([]demoTurn, 0, o.Users) // the next of each user that has one, the last speaker's last
		for user := range o.Users {
			open = append(open, demoTurn{User: user})
		}
		for len(open) > 0 {
			i := rng.IntN(len(open))
			if rng.Float64() < activeShare {
				i = len(open) - 1 - rng.IntN(min(activeUsers, len(open)))
			}
			turn := open[i]
			prompt = o.prompt(prompt[:systemTokens], turn)
			if !yield(demoTurn{turn.User, turn.Number, prompt}) {
				return
			}
			open = slices.Delete(open, i, i+1)
			if turn.Number++; turn.Number < o.Turns {
				open = append(open, turn)
			}
		}
	}
}

// prompt appends what a user and the assistant have said by a turn.
func (o *demoOptions) prompt(prompt []uint32, at demoTurn) []uint32 {
	rng := rand.New(rand.NewPCG(o.Seed, uint64(at.User)+1))
	for turn := range at.Number + 1 {
		if turn > 0 {
			prompt = say(rng, prompt, minReply+rng.IntN(maxReply-minReply))
		}
		prompt = say(rng, prompt, minSaid+rng.IntN(maxSaid-minSaid))
	}
	return prompt
}

func say(rng *rand.Rand, prompt []uint32, n int) []uint32 {
	for range n {
		prompt = append(prompt, rng.Uint32N(vocabulary))
	}
	return prompt
}
