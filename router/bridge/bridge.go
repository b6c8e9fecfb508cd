package bridge

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/publish"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Daemon is a connection to a daemon; *client.Client is one.
type Daemon interface {
	Events(ctx context.Context, o client.EventsOptions, do func(*client.EventBatch) error) error
	Close() error
}

// Options of a Bridge. A zero value means the default in the comment.
type Options struct {
	Dial    func(context.Context) (Daemon, error)
	Topic   string
	Batches int           // that can be asked for again; 0 = 1,024
	Grace   time.Duration // that the daemon may be away before what it has is forgotten; 0 = 30 s
	Log     zerolog.Logger
}

// Bridge tells ZeroMQ subscribers what a daemon has.
type Bridge struct {
	*publish.Publisher
	o   Options
	log *index.Log

	// Of follow's goroutine.
	epoch, next uint64
	known       bool      // epoch and next are, so that a session goes on from there
	begun       bool      // a snapshot, of which a part has come
	told        bool      // something was, since all was cleared
	heard       time.Time // when there was a connection last

	connected atomic.Bool
	snapshots atomic.Uint64
	mu        struct {
		sync.Mutex
		spaces map[key.SpaceID]key.Space
	}
}

var (
	errLost = errors.New("the daemon has let go of batches")
	errDone = errors.New("the snapshot is complete")
)

// New makes a bridge. Its owner serves Pub and Replay, and runs it.
func New(o Options) *Bridge {
	o.Batches = cmp.Or(o.Batches, 1024)
	o.Grace = cmp.Or(o.Grace, 30*time.Second)
	b := &Bridge{o: o, log: index.NewLog(0, index.LogOptions{Batches: o.Batches, Changes: o.Batches * index.MaxBatch / 4})}
	b.mu.spaces = make(map[key.SpaceID]key.Space)
	b.Publisher = publish.New(publish.Options{Events: b.log, Topic: o.Topic, Spaces: b.space, Contents: b.contents, Log: o.Log})
	return b
}

// Run follows the daemon and publishes until ctx ends.
func (b *Bridge) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.log.Run(ctx) })
	g.Go(func() error { return b.Publisher.Run(ctx) })
	g.Go(func() error { return b.follow(ctx) })
	return g.Wait()
}

// follow connects to the daemon again and again until ctx ends.
func (b *Bridge) follow(ctx context.Context) error {
	for pause, first := firstPause, true; ; pause, first = min(2*pause, lastPause), false {
		begun := time.Now()
		err := b.session(ctx)
		heard := b.connected.Swap(false)
		if ctx.Err() != nil {
			return nil
		}
		level := zerolog.DebugLevel
		if heard || first {
			b.heard, level = time.Now(), zerolog.WarnLevel
		}
		b.o.Log.WithLevel(level).Err(err).Msg("the daemon is not heard; the bridge goes on trying")
		if b.told && time.Since(b.heard) >= b.o.Grace {
			b.clear()
			b.known, b.told = false, false
		}
		if time.Since(begun) > lastPause || errors.Is(err, errLost) {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// session is one connection. It goes on where the last one ended, and begins with all
// that is there where that is not possible.
func (b *Bridge) session(ctx context.Context) error {
	c, err := b.o.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	b.connected.Store(true)
	o := client.EventsOptions{Epoch: b.epoch, From: b.next}
	if !b.known {
		o = client.EventsOptions{From: client.EventsNow, Snapshot: true}
		b.snapshots.Add(1)
	}
	b.o.Log.Info().Bool("anew", o.Snapshot).Msg("the daemon is heard")
	b.begun = false
	return c.Events(ctx, o, b.batch)
}

// batch notes a batch, or a part of a snapshot.
func (b *Bridge) batch(batch *client.EventBatch) error {
	if batch.Lost {
		b.known = false
		return errLost
	}
	if batch.Snapshot && !b.begun {
		b.known, b.begun = false, true
		b.clear()
	}
	b.learn(batch.Spaces)
	for i := range batch.Events {
		b.log.Note(changeOf(&batch.Events[i]))
	}
	b.told = true
	b.epoch, b.next = batch.Epoch, batch.Seq
	if !batch.Snapshot {
		b.next++
	}
	b.known = b.known || !batch.Snapshot || batch.Complete
	return nil
}

// clear has subscribers forget everything, which goes for spaces as well: changes that are
// not encoded yet come before it.
func (b *Bridge) clear() {
	b.log.Note(index.Change{Kind: index.Cleared})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.spaces = make(map[key.SpaceID]key.Space)
}

// changeOf is an event as the log has it.
func changeOf(e *client.Event) index.Change {
	return index.Change{
		Kind: index.ChangeKind(e.Kind), Place: uint8(bits.TrailingZeros8(uint8(e.Tier)) & 7), Tokens: e.Tokens,
		Key: key.Key{Space: e.Space, Hash: e.Hash}, Parent: e.Parent,
	}
}

// contents asks the daemon for all that is there.
func (b *Bridge) contents(ctx context.Context, visit func([]index.Change) error) error {
	c, err := b.o.Dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Events(ctx, client.EventsOptions{From: client.EventsNow, Snapshot: true}, func(batch *client.EventBatch) error {
		if !batch.Snapshot {
			return errLost
		}
		b.learn(batch.Spaces)
		for part := range slices.Chunk(batch.Events, index.MaxBatch) {
			list := make([]index.Change, len(part))
			for i := range part {
				list[i] = changeOf(&part[i])
			}
			if err := visit(list); err != nil {
				return err
			}
		}
		if batch.Complete {
			return errDone
		}
		return nil
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// learn remembers spaces.
func (b *Bridge) learn(spaces map[key.SpaceID]key.Space) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.Copy(b.mu.spaces, spaces)
}

// space is a space that the daemon has told of.
func (b *Bridge) space(id key.SpaceID) (key.Space, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s, known := b.mu.spaces[id]
	return s, known
}
