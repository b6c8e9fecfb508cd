package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

const (
	promptChunks = 64
	promptChunk  = 4 << 20
)

// prompt is a prompt on a subject's disk, and one chunk that is alone, under a
// store that promotes them to leased memory as the daemon does.
type prompt struct {
	hot         *cpu.Tier
	tiers       *store.Store
	long, alone *key.Chain
	stop        context.CancelFunc
	ran         chan error
}

func openPrompt(ctx context.Context, s *subject) (*prompt, error) {
	capacity := s.arena.Stats().CapacityBytes
	lru, err := policy.New("lru", capacity)
	if err != nil {
		return nil, err
	}
	p := &prompt{ran: make(chan error, 1)}
	p.hot = cpu.New(cpu.Options{
		Arena: s.arena, Ledger: ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru}),
		HighWatermark: 0.95, LowWatermark: 0.90,
	})
	p.tiers = store.New(store.Options{Hot: p.hot, Below: []store.Below{{Place: tier.Disk, Tier: s.Tier}}, Log: zerolog.Nop()})
	running, stop := context.WithCancel(context.Background())
	p.stop = stop
	go func() { p.ran <- p.tiers.Run(running) }()
	p.long, p.alone = newChain(1, promptChunks), newChain(2, 1)
	if err := errors.Join(p.store(ctx, p.long), p.store(ctx, p.alone)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// close leaves the subject as it was, but for the chunks on its disk.
func (p *prompt) close() error {
	p.stop()
	err := <-p.ran
	p.tiers.Loader.Wait()
	return errors.Join(err, p.hot.Close())
}

// newChain has keys that no subject numbers.
func newChain(name byte, n int) *key.Chain {
	c := &key.Chain{Space: key.SpaceID{name}}
	for i := range n {
		var h key.Hash
		binary.LittleEndian.PutUint64(h[:], uint64(i)+1)
		c.Hashes, c.Tokens = append(c.Hashes, h), append(c.Tokens, 256)
	}
	return c
}

// store leaves c on disk, and only there.
func (p *prompt) store(ctx context.Context, c *key.Chain) error {
	for i := range c.Len() {
		var g [1]store.Grant
		if _, err := p.tiers.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, i, []uint32{promptChunk}, g[:]); err != nil {
			return err
		}
		fillRandom(g[0].Ref.Block.Bytes())
		g[0].Ref.Block.Seal()
		p.tiers.Filler.Commit(c, i, []tier.Ref{g[0].Ref}, 0, make([]bool, 1))
	}
	return errors.Join(p.tiers.Writers.Flush(ctx, false), p.cool(ctx, c))
}

// cool takes c out of DRAM.
func (p *prompt) cool(ctx context.Context, c *key.Chain) error {
	for i := range c.Len() {
		if err := p.hot.Delete(ctx, []key.Key{c.Key(i)}); err != nil {
			return err
		}
		// The index learns it.
		if _, err := p.tiers.Leases.Hold(ledger.Daemon, ledger.IO, c, i, i+1, make([]tier.Ref, 1)); err != nil {
			return err
		}
	}
	return nil
}

// measure promotes the prompt, in bytes per second, after the chunk alone;
// late is how much longer the first chunk takes than that one.
func (p *prompt) measure(ctx context.Context) (rate, late float64, err error) {
	alone, _, err := p.prefetch(ctx, p.alone)
	if err != nil {
		return 0, 0, err
	}
	first, all, err := p.prefetch(ctx, p.long)
	return float64(p.long.Len()*promptChunk) / all.Seconds(), first.Seconds() / alone.Seconds(), err
}

// prefetch promotes c until it is all leased. first is when its first chunk is.
func (p *prompt) prefetch(ctx context.Context, c *key.Chain) (first, all time.Duration, err error) {
	o := p.tiers.Leases.NewOwner()
	defer p.tiers.Leases.CloseOwner(o)
	begun := time.Now()
	j := prefetch.New(prefetch.Options[tier.Ref]{
		To: c.Len(), Window: 256 << 20, ChunkBytes: promptChunk, Discard: func(r tier.Ref) { p.tiers.Leases.Release(o, ledger.Lease, []tier.Ref{r}) },
	}, &lease{p.tiers, o, c})
	ran := make(chan struct{})
	go func() {
		j.Run(ctx)
		close(ran)
	}()
	j.Wait(ctx, 1)
	first = time.Since(begun)
	st := j.Wait(ctx, c.Len())
	all = time.Since(begun)
	<-ran
	p.tiers.Leases.Release(o, ledger.Lease, j.Ready(0, nil))
	if st.Ready < c.Len() {
		return 0, 0, fmt.Errorf("the prefetch ended after %d of %d chunks: %w", st.Ready, c.Len(), st.Err)
	}
	return first, all, p.cool(ctx, c)
}

// lease is where a prefetch gets its chunks.
type lease struct {
	store *store.Store
	owner ledger.Owner
	chain *key.Chain
}

// Load implements prefetch.Source.
func (l *lease) Load(ctx context.Context, i int) (tier.Ref, int64, error) {
	r, _, err := l.store.Loader.Load(ctx, store.Requester{Owner: l.owner}, l.chain, i, tier.All)
	if err != nil {
		return tier.Ref{}, 0, err
	}
	return r, int64(r.Block.Len()), nil
}
