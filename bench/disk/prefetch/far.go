package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// far is a tier in memory that answers each read after a while, however many
// there are.
type far struct {
	latency time.Duration
	mu      sync.RWMutex
	entries map[key.Key][]byte
}

func (*far) Name() string      { return "remote" }
func (*far) Stats() tier.Stats { return tier.Stats{} }
func (*far) Close() error      { return nil }

func (f *far) Contains(_ context.Context, ks []key.Key, have []bool) error {
	f.mu.RLock()
	defer f.mu.RUnlock()
	for i, k := range ks {
		_, have[i] = f.entries[k]
	}
	return nil
}

func (f *far) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	t := time.NewTimer(f.latency)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return arena.Block{}, ctx.Err()
	}
	f.mu.RLock()
	p, ok := f.entries[k]
	f.mu.RUnlock()
	if !ok {
		return arena.Block{}, tier.ErrNotFound
	}
	b, err := a.Alloc(ctx, len(p))
	if err == nil {
		b.SealSum(b.Write(p))
	}
	return b, err
}

func (f *far) Put(_ context.Context, e tier.Entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.entries[e.Key] = slices.Clone(e.Block.Bytes())
	return nil
}

func (f *far) Delete(_ context.Context, ks []key.Key) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range ks {
		delete(f.entries, k)
	}
	return nil
}
