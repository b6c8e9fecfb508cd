package main

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

const chunkTokens = 256

var space = key.Space{Model: "bench", World: 1, DType: "bytes", ChunkTokens: chunkTokens, Method: key.Given}

// served is DRAM over one tier, served at a socket.
type served struct {
	arena  *arena.Arena
	hot    *cpu.Tier
	store  *store.Store
	socket string
	place  tier.Place
	got    atomic.Int64 // when the last read of the tier returned, in ns
	next   uint64       // number of the next chain
	stop   context.CancelFunc
	ended  chan error
}

// open serves a store whose prefetches have so many bytes in flight.
func open(dir string, below tier.Tier, place tier.Place, loads tier.Limit, windowBytes int64) (*served, error) {
	const capacity = 768 << 20
	s := &served{socket: filepath.Join(dir, place.String()+".sock"), place: place, ended: make(chan error, 2)}
	var err error
	if s.arena, err = arena.New(arena.Options{CapacityBytes: capacity, HugePages: "auto", Touch: arena.Touch}); err == nil {
		err = s.arena.Populate(context.Background())
	}
	if err != nil {
		return nil, err
	}
	lru, err := policy.New("lru", capacity)
	if err != nil {
		return nil, err
	}
	s.hot = cpu.New(cpu.Options{
		Arena: s.arena, Ledger: ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru}),
		HighWatermark: 0.95, LowWatermark: 0.90,
	})
	timed := tier.WithBreaker(below, tier.BreakerOptions{Log: zerolog.Nop(), Observe: func(op string, _ time.Duration) {
		if op == "get" {
			s.got.Store(time.Now().UnixNano())
		}
	}})
	s.store = store.New(store.Options{
		Hot: s.hot, Below: []store.Below{{Place: place, Tier: timed, Loads: loads}}, Log: zerolog.Nop(),
	})
	srv := server.New(server.Options{
		Store: s.store, Arena: s.arena, Log: zerolog.Nop(),
		Settings: server.Settings{
			LeaseMaxAge: time.Hour, PinMaxAge: time.Hour,
			Prefetch:    server.Prefetch{Policy: wire.PolicyWaitComplete, Deadline: time.Minute, WindowBytes: windowBytes},
			ChunkTokens: chunkTokens, Method: string(key.SHA256),
		},
	})
	l, err := socket.Listen(s.socket, os.FileMode(0o600), "")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	go func() { s.ended <- s.store.Run(ctx) }()
	go func() { s.ended <- srv.Serve(ctx, l) }()
	return s, nil
}

func (s *served) close() error {
	s.stop()
	err := errors.Join(<-s.ended, <-s.ended)
	s.store.Loader.Wait()
	return errors.Join(err, s.hot.Close(), s.arena.Close())
}

// chain stores a new chain of n chunks in the tier below, and in it only.
func (s *served) chain(ctx context.Context, n, size int) (*key.Chain, error) {
	id, err := space.ID()
	if err != nil {
		return nil, err
	}
	s.next++
	c := &key.Chain{Space: id}
	for i := range n {
		var h key.Hash
		binary.LittleEndian.PutUint64(h[:], s.next<<32|uint64(i)+1)
		h[15] = byte(s.place)
		c.Hashes, c.Tokens = append(c.Hashes, h), append(c.Tokens, chunkTokens)
	}
	for i := range n {
		var g [1]store.Grant
		if _, err := s.store.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon, Patience: tier.Wait}, c, i, []uint32{uint32(size)}, g[:]); err != nil {
			return nil, err
		}
		b := g[0].Ref.Block
		for off := 0; off < size; off += 512 {
			binary.LittleEndian.PutUint64(b.Bytes()[off:], s.next<<40^uint64(i)<<20^uint64(off))
		}
		b.Seal()
		s.store.Filler.Commit(c, i, []tier.Ref{g[0].Ref}, 0, make([]bool, 1))
	}
	if err := s.store.Writers.Flush(ctx, false); err != nil {
		return nil, err
	}
	return c, s.cool(ctx, c)
}

// cool takes a chain out of DRAM.
func (s *served) cool(ctx context.Context, c *key.Chain) error {
	if err := s.hot.Delete(ctx, keys(c)); err != nil {
		return err
	}
	for i := range c.Len() { // the index learns it
		if _, err := s.store.Leases.Hold(ledger.Daemon, ledger.IO, c, i, i+1, make([]tier.Ref, 1)); err != nil {
			return err
		}
	}
	return nil
}

func keys(c *key.Chain) []key.Key {
	ks := make([]key.Key, c.Len())
	for i := range ks {
		ks[i] = c.Key(i)
	}
	return ks
}

// sockets is a connection of its own.
func (s *served) sockets() (from, to net.Conn, err error) {
	l, err := net.Listen("unix", s.socket+".bare")
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	if from, err = net.Dial("unix", s.socket+".bare"); err != nil {
		return nil, nil, err
	}
	if to, err = l.Accept(); err != nil {
		return nil, nil, errors.Join(err, from.Close())
	}
	return from, to, nil
}

func (s *served) dial(ctx context.Context) (*client.Client, error) {
	return client.Dial(ctx, s.socket, client.Options{Name: "bench", Space: &space})
}

// prefetch promotes a chain and returns how long that took; watch, unless nil,
// is called now and then meanwhile.
func (s *served) prefetch(ctx context.Context, c *client.Client, chain *key.Chain, watch func(*client.Job)) (time.Duration, error) {
	begun := time.Now()
	j, err := c.Prefetch(ctx, client.Chain(chain), client.PrefetchOptions{})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for tokens := int64(chunkTokens); ; tokens += chunkTokens {
		st, err := j.Wait(ctx, tokens)
		if err != nil {
			return 0, err
		}
		if took = time.Since(begun); st.Done {
			if int(st.Ready.Chunks) != chain.Len() {
				return 0, errors.New("a prefetch ended by " + st.Reason.String())
			}
			break
		}
		if watch != nil {
			watch(j)
		}
		tokens = max(tokens, int64(st.Ready.Tokens))
	}
	return took, errors.Join(j.Release(ctx), s.cool(ctx, chain))
}
