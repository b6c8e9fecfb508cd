package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/dgraph-io/badger/v4"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/arena"
)

// valueLog is the same payloads as values of a Badger of its own, which keeps
// them in its value log: what the tier would be without extents.
type valueLog struct {
	dir   string
	arena *arena.Arena
	bytes int64
	db    *badger.DB
	sum   uint64 // of the payload
}

func openValueLog(dir string, bytes int64) (*valueLog, error) {
	a, err := arena.New(arena.Options{CapacityBytes: 64 << 20, HugePages: "auto", Touch: arena.Touch})
	if err != nil {
		return nil, err
	}
	return &valueLog{dir: filepath.Join(dir, "badger"), arena: a, bytes: bytes}, nil
}

func (v *valueLog) close() error {
	err := v.arena.Close()
	if v.db != nil {
		err = errors.Join(err, v.db.Close())
	}
	return err
}

// open also drops what the page cache has of the files, as far as the kernel
// lets go of it.
func (v *valueLog) open() (err error) {
	if v.db != nil {
		err = v.db.Close()
		v.db = nil
	}
	if err != nil {
		return err
	}
	dropPageCache(v.dir)
	o := badger.DefaultOptions(v.dir).WithValueThreshold(4 << 10).WithDetectConflicts(false).WithMetricsEnabled(false).WithLogger(nil)
	v.db, err = badger.Open(o)
	return err
}

func numberKey(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// put times stores, until they have reached the device as direct writes have.
func (v *valueLog) put(ctx context.Context, size int) (float64, error) {
	if v.db == nil {
		if err := v.open(); err != nil {
			return 0, err
		}
	}
	if err := v.db.DropAll(); err != nil { // so that it does not fill the disk
		return 0, err
	}
	b, err := v.arena.Alloc(size)
	if err != nil {
		return 0, err
	}
	defer b.Release()
	fillRandom(b.Bytes())
	v.sum = b.Seal()
	n := v.bytes / int64(size)
	begun := time.Now()
	var g errgroup.Group
	g.SetLimit(readers)
	for i := range n {
		g.Go(func() error {
			return v.db.Update(func(txn *badger.Txn) error { return txn.Set(numberKey(i), b.Bytes()) })
		})
	}
	if err := errors.Join(g.Wait(), v.db.Sync(), ctx.Err()); err != nil {
		return 0, fmt.Errorf("badger: put: %w", err)
	}
	return float64(n*int64(size)) / time.Since(begun).Seconds(), nil
}

// get times reads into the arena, checksum included, of what put has left.
func (v *valueLog) get(ctx context.Context, size int) (float64, error) {
	if _, err := v.put(ctx, size); err != nil {
		return 0, err
	}
	if err := v.open(); err != nil {
		return 0, err
	}
	n := v.bytes / int64(size)
	begun := time.Now()
	var g errgroup.Group
	g.SetLimit(readers)
	for i := range n {
		g.Go(func() error { return v.read(i, size) })
	}
	if err := errors.Join(g.Wait(), ctx.Err()); err != nil {
		return 0, fmt.Errorf("badger: get: %w", err)
	}
	return float64(n*int64(size)) / time.Since(begun).Seconds(), nil
}

func (v *valueLog) read(i int64, size int) error {
	b, err := v.arena.Alloc(size)
	if err != nil {
		return err
	}
	defer b.Release()
	err = v.db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(numberKey(i))
		if err != nil {
			return err
		}
		return item.Value(func(p []byte) error {
			if b.Write(p) != v.sum {
				return errors.New("wrong bytes")
			}
			return nil
		})
	})
	return err
}
