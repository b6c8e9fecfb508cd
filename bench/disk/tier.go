package main

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	writers = 32 // as the daemon's
	readers = 4
)

// subject is a disk tier of its own with payloads in it.
type subject struct {
	*disk.Tier
	arena *arena.Arena
	bytes int64
	next  uint64             // number of the next key
	have  map[int][]key.Key  // to read, by size
	ran   chan error         // Run has ended
	stop  context.CancelFunc // ends it
}

// openSubject opens a tier in dir whose measurements move bytes each.
func openSubject(dir string, bytes, capacity int64, depth int, inline int64) (*subject, error) {
	a, err := arena.New(arena.Options{CapacityBytes: 512 << 20, HugePages: "auto", Touch: arena.Touch})
	if err == nil {
		err = a.Populate(context.Background())
	}
	if err != nil {
		return nil, err
	}
	d, err := disk.Open(disk.Options{
		Paths: []string{dir}, CapacityBytes: capacity, SegmentBytes: min(1<<30, capacity/4),
		Policy: "lru", IODepth: depth, InlineMax: inline, Log: zerolog.Nop(),
	})
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &subject{Tier: d, arena: a, bytes: bytes, have: make(map[int][]key.Key), ran: make(chan error, 1), stop: stop}
	go func() { s.ran <- d.Run(ctx) }()
	return s, nil
}

// fill stores the chunks that are read later.
func (s *subject) fill(ctx context.Context) error {
	for _, size := range sizes {
		ks, _, err := s.store(ctx, size)
		if err != nil {
			return err
		}
		s.have[size] = ks
	}
	return nil
}

func (s *subject) close() error {
	err := s.Close()
	s.stop()
	_ = <-s.ran
	return errors.Join(err, s.arena.Close())
}

// Alloc implements tier.Allocator.
func (s *subject) Alloc(_ context.Context, n int) (arena.Block, error) { return s.arena.Alloc(n) }

// store puts new keys of size bytes each and returns them.
func (s *subject) store(ctx context.Context, size int) ([]key.Key, time.Duration, error) {
	return s.storeWith(size, func(e tier.Entry) error { return s.Put(ctx, e) })
}

// storeWith lets put do it.
func (s *subject) storeWith(size int, put func(tier.Entry) error) ([]key.Key, time.Duration, error) {
	b, err := s.arena.Alloc(size)
	if err != nil {
		return nil, 0, err
	}
	defer b.Release()
	fillRandom(b.Bytes())
	sum := b.Seal()
	ks := make([]key.Key, s.bytes/int64(size))
	for i := range ks {
		s.next++
		binary.LittleEndian.PutUint64(ks[i].Hash[:], s.next)
	}
	begun := time.Now()
	var g errgroup.Group
	g.SetLimit(writers)
	for _, k := range ks {
		g.Go(func() error {
			return put(tier.Entry{Record: tier.Record{Key: k, Tokens: 256, Size: uint32(size), Sum: sum}, Block: b})
		})
	}
	err = g.Wait()
	return ks, time.Since(begun), err
}

// fillRandom makes bytes that no device compresses.
func fillRandom(p []byte) {
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(p) // never fails
}

// put times stores of new keys, and removes them again.
func (s *subject) put(ctx context.Context, size int) (float64, error) {
	ks, took, err := s.store(ctx, size)
	if err != nil {
		return 0, err
	}
	return float64(len(ks)*size) / took.Seconds(), s.Delete(ctx, ks)
}

// get times reads, a few under way at a time, in bytes per second.
func (s *subject) get(ctx context.Context, size int) (float64, error) {
	ks := s.have[size]
	begun := time.Now()
	var g errgroup.Group
	g.SetLimit(readers)
	for _, k := range ks {
		g.Go(func() error {
			b, err := s.Get(ctx, k, s)
			if err != nil {
				return err
			}
			b.Release()
			return nil
		})
	}
	err := g.Wait()
	return float64(len(ks)*size) / time.Since(begun).Seconds(), err
}
