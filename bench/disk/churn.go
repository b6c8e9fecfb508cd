package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// full is a tier that has no room left, so that each put evicts.
type full struct {
	*subject
	size    int
	payload uint64 // bytes put while it was timed, and what was written for them
	written uint64
}

// openFull fills a tier of twice the bytes that a measurement moves.
func openFull(ctx context.Context, dir string, bytes int64, depth, size int) (*full, error) {
	s, err := openSubject(filepath.Join(dir, "full"), bytes, 2*bytes, depth, usualInline)
	if err != nil {
		return nil, err
	}
	f := &full{subject: s, size: size}
	for s.Stats().Evictions == 0 {
		if _, err := f.put(ctx); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	f.payload, f.written = 0, 0
	return f, nil
}

// put times stores of new keys. Room is made in the background, ahead of them,
// as the daemon does, and where that is late by the store that needs it.
func (f *full) put(ctx context.Context) (float64, error) {
	before := f.Stats()
	stop := make(chan struct{})
	trimmed := make(chan error, 1)
	go func() { trimmed <- f.keepRoom(ctx, stop) }()
	ks, took, err := f.storeWith(f.size, func(e tier.Entry) error {
		for {
			err := f.Put(ctx, e)
			if !errors.Is(err, tier.ErrNoSpace) {
				return err
			}
			if _, err := f.Trim(ctx, int64(e.Size), nil); err != nil {
				return err
			}
		}
	})
	close(stop)
	if err := errors.Join(err, <-trimmed); err != nil {
		return 0, fmt.Errorf("full: %w", err)
	}
	after := f.Stats()
	f.payload += after.PutBytes - before.PutBytes
	f.written += writtenBytes(after) - writtenBytes(before)
	return float64(len(ks)*f.size) / took.Seconds(), nil
}

func (f *full) keepRoom(ctx context.Context, stop <-chan struct{}) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		if _, err := f.Trim(ctx, 0, nil); err != nil && !errors.Is(err, tier.ErrNoSpace) {
			return err
		}
	}
}

// writtenBytes is what went to extents and to the database.
func writtenBytes(s tier.Stats) uint64 {
	return s.Counters["extent_bytes_written"] + s.Counters["badger_bytes_written"]
}
