package demo

import (
	"context"
	"fmt"
	"iter"
	"time"
)

// The size of a demo: DRAM is too small for the conversations, so that the disk
// has work, and both fit on a small machine.
const (
	DRAMBytes    = 256 << 20
	DiskBytes    = 2 << 30
	SegmentBytes = 128 << 20
	ChunkTokens  = 256
	PayloadBytes = 768 << 10 // of every chunk
	SystemTokens = 1024      // of the prompt that all conversations begin with
)

// Bounds of a chat: prompts that fit into DRAM, and users that can be counted.
const (
	MostUsers     = 1_000_000_000
	MostChatTurns = 60
)

// Daemon is a daemon that a demo has for itself.
type Daemon interface {
	// Start returns once the daemon serves and knows all that it has on disk.
	Start(ctx context.Context) (Found, error)
	// Stop ends it as an operator would, with everything unwritten written.
	Stop(ctx context.Context) error
	// Socket is where it listens.
	Socket() string
}

// Found is what a daemon has on disk when it starts.
type Found struct{ Chunks, Bytes int64 }

// Options of a demo.
type Options struct {
	Chat                   Chat
	PrefillTokensPerSecond float64 // speed at which an engine is assumed to compute prompts
	Daemon                 Daemon
	// Step is told what begins now, and Played of each prompt that was played.
	Step   func(what string)
	Played func(turn Turn)
}

// Run plays the first half, restarts the daemon and plays the second. Beside an
// error the daemon may still run.
func Run(ctx context.Context, o Options) (*Result, error) {
	p := player{Options: &o, result: Result{
		Users: o.Chat.Users, Turns: o.Chat.Turns, SystemTokens: o.Chat.SystemTokens,
		ChunkTokens: ChunkTokens, PayloadBytes: PayloadBytes, DRAMBytes: DRAMBytes,
		Total: newSums(), Before: newSums(), After: newSums(),
	}}
	begun := time.Now()
	if err := p.play(ctx); err != nil {
		return nil, err
	}
	r := &p.result
	r.Seconds = time.Since(begun).Seconds()
	r.Saved = Saved{
		Tokens: r.Total.HitTokens, PrefillTokensPerSecond: o.PrefillTokensPerSecond,
		PrefillSeconds: float64(r.Total.HitTokens) / o.PrefillTokensPerSecond,
		WaitedSeconds:  r.Total.waited.Seconds(),
	}
	return r, nil
}

// player is the playing part of a demo.
type player struct {
	*Options
	next   func() (Turn, bool)
	took   time.Duration // playing, without the restart
	result Result
}

func (p *player) play(ctx context.Context) error {
	p.Step("starting a daemon")
	if _, err := p.Daemon.Start(ctx); err != nil {
		return err
	}
	next, stop := iter.Pull(p.Chat.All())
	defer stop()
	p.next = next
	turns := p.Chat.Users * p.Chat.Turns
	p.Step("playing the first half")
	if err := p.half(ctx, &p.result.Before, turns/2); err != nil {
		return err
	}
	if err := p.restart(ctx); err != nil {
		return err
	}
	p.Step("playing the second half")
	if err := p.half(ctx, &p.result.After, turns-turns/2); err != nil {
		return err
	}
	p.result.Total.finish(p.took)
	p.Step("stopping the daemon, which writes what is unwritten")
	return p.Daemon.Stop(ctx)
}

// half plays n turns over one connection.
func (p *player) half(ctx context.Context, sums *Sums, n int) error {
	e, err := dial(ctx, p.Daemon.Socket())
	if err != nil {
		return err
	}
	defer e.client.Close()
	start := time.Now()
	for range n {
		turn, ok := p.next()
		if !ok {
			break
		}
		played, err := e.play(ctx, turn.Tokens)
		if err != nil {
			return fmt.Errorf("user %d, turn %d: %w", turn.User, turn.Number, err)
		}
		sums.add(&played)
		p.result.Total.add(&played)
		p.Played(turn)
	}
	took := time.Since(start)
	p.took += took
	sums.finish(took)
	return nil
}

// restart ends the daemon as an operator would and starts it again. All that
// it knows then comes from disk.
func (p *player) restart(ctx context.Context) error {
	r := &p.result.Restart
	p.Step("stopping the daemon, which writes what is unwritten")
	start := time.Now()
	if err := p.Daemon.Stop(ctx); err != nil {
		return err
	}
	r.StopSeconds = time.Since(start).Seconds()
	p.Step("starting it again, from disk alone")
	start = time.Now()
	found, err := p.Daemon.Start(ctx)
	if err != nil {
		return err
	}
	r.StartSeconds = time.Since(start).Seconds()
	r.ChunksBack, r.BytesBack = found.Chunks, found.Bytes
	return nil
}
