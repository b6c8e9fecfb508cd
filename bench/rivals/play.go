package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/bench/measure"
)

const (
	bytesOfCell = 64 << 20 // of all clients together
	batch       = 16       // values of a batch
	few         = 16       // names that are written over, of each client
	pings       = 2000     // of all clients together
	named       = 1000     // in one question whether they are there
	questions   = 200      // of all clients together
)

// order is what a process of clients is to do.
type order struct {
	System, Socket string
	PID            int // of the server
	Clients, Size  int
	Only           string
}

// cell is one measurement.
type cell struct {
	What   string
	Bytes  int             // in all
	Took   time.Duration   // all of it
	Each   []time.Duration // each call
	Client time.Duration   // processor time
	Server time.Duration
}

// conn is one client's connection to a system. Names are numbers.
type conn interface {
	ping() error
	put(name uint64, value []byte) error
	get(name uint64, into []byte) error
	putMany(first uint64, values [][]byte) error
	getMany(first uint64, into [][]byte) error
	forget(first, n uint64) error
	finish() error // waits for what is under way
}

func dial(system, socket string, size int) (conn, error) {
	switch system {
	case ours:
		return dialOurs(socket)
	case redis, ourRedis:
		return dialRedis(socket)
	case memcached:
		return dialMemcached(socket)
	}
	return dialMemory(size), nil
}

// counter is a conn that can be asked how many of many names are there, again and
// again.
type counter interface {
	counts(names []uint64) (ask func() (int, error))
}

// player is one client.
type player struct {
	conn
	first    uint64 // its names begin here
	src, dst []byte // of values, n times size
	size, n  int
	took     []time.Duration
	count    func() (int, error) // how many of named names are there
}

// warm stores and deletes values, so that no memory is used for the first time
// while it is timed.
func (p *player) warm() error {
	const at = 3 << 32
	if err := p.putMany(p.first+at, p.many(p.value, 0)); err != nil {
		return err
	}
	if err := p.finish(); err != nil {
		return err
	}
	return p.forget(p.first+at, batch)
}

// step is one thing that is timed: n calls, each about so many values.
type step struct {
	what   string
	n      func(p *player) int // all clients together, where there are no values
	values int
	call   func(p *player, i int) error
}

const exists = "EXISTS of 1000"

var steps = []step{
	{"round trip", func(p *player) int { return pings }, 0, func(p *player, _ int) error { return p.ping() }},
	{"put", func(p *player) int { return p.n }, 1, func(p *player, i int) error { return p.put(p.first+uint64(i), p.value(i)) }},
	{"get", func(p *player) int { return p.n }, 1, func(p *player, i int) error { return p.get(p.first+uint64(i), p.room(i)) }},
	{"put of 16", func(p *player) int { return max(1, p.n/batch) }, batch, func(p *player, i int) error {
		return p.putMany(p.first+1<<32+uint64(i*batch), p.many(p.value, i))
	}},
	{"get of 16", func(p *player) int { return max(1, p.n/batch) }, batch, func(p *player, i int) error {
		return p.getMany(p.first+1<<32+uint64(i*batch), p.many(p.room, i))
	}},
	{exists, func(p *player) int { return questions }, 0, (*player).exist},
	{"overwrite", func(p *player) int { return p.n }, 1, func(p *player, i int) error { return p.put(p.first+2<<32+uint64(i%few), p.value(i)) }},
}

// exist asks for names that were put, some of them twice where it has few.
func (p *player) exist(int) error {
	if p.count == nil {
		names := make([]uint64, named)
		for i := range names {
			names[i] = p.first + uint64(i%p.n)
		}
		p.count = p.conn.(counter).counts(names)
	}
	n, err := p.count()
	if err == nil && n != named {
		err = fmt.Errorf("%d of %d names are there", n, named)
	}
	return err
}

func (p *player) value(i int) []byte { return p.src[i%p.n*p.size:][:p.size] }
func (p *player) room(i int) []byte  { return p.dst[i%p.n*p.size:][:p.size] }

func (p *player) many(of func(i int) []byte, i int) (out [][]byte) {
	for k := range batch {
		out = append(out, of(i*batch+k))
	}
	return out
}

// play plays the clients of one system and prints their times as JSON.
func play(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	only, err := regexp.Compile(o.Only)
	if err != nil {
		return err
	}
	players := make([]*player, o.Clients)
	for i := range players {
		if players[i], err = newPlayer(&o, i); err != nil {
			return err
		}
	}
	out, err := times(&o, only, players)
	if err != nil {
		return err
	}
	for _, p := range players {
		if err := p.end(&o, only.MatchString("get") || only.MatchString("get of 16")); err != nil {
			return err
		}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// times has the players take all steps that are asked for, and those that these
// need.
func times(o *order, only *regexp.Regexp, players []*player) (out []cell, err error) {
	for _, s := range steps {
		_, counts := players[0].conn.(counter)
		switch {
		case s.what == exists && !counts, s.what == "overwrite" && o.System == ours: // a key of ours has one value
			continue
		case s.what != "put" && s.what != "put of 16" && !only.MatchString(s.what): // what is read must be there
			continue
		}
		c, err := s.time(o, players)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.what, err)
		}
		if only.MatchString(s.what) {
			out = append(out, *c)
		}
	}
	return out, nil
}

// newPlayer connects the i-th client.
func newPlayer(o *order, i int) (*player, error) {
	c, err := dial(o.System, o.Socket, o.Size)
	if err != nil {
		return nil, err
	}
	n := max(4, bytesOfCell/o.Clients/o.Size)
	p := &player{conn: c, first: rand.Uint64() &^ (1<<34 - 1), src: make([]byte, n*o.Size), dst: make([]byte, n*o.Size), size: o.Size, n: n}
	r := rand.NewChaCha8([32]byte{byte(i)})
	_, _ = r.Read(p.src) // never fails
	clear(p.dst)
	return p, p.warm()
}

// end compares the values read, if there are any, and forgets the stored ones.
func (p *player) end(o *order, read bool) error {
	if read && o.System != noServer && !slices.Equal(p.src, p.dst) {
		return fmt.Errorf("%s: other bytes were read than stored", o.System)
	}
	for _, at := range []uint64{0, 1 << 32, 2 << 32} {
		if err := p.forget(p.first+at, uint64(max(p.n, batch))); err != nil {
			return err
		}
	}
	return nil
}

// time has all clients make their calls at the same time.
func (s *step) time(o *order, players []*player) (*cell, error) {
	c := &cell{What: s.what}
	var g errgroup.Group
	client, server := measure.Used(0), measure.Used(o.PID)
	begun := time.Now()
	for _, p := range players {
		n := s.n(p)
		if s.values == 0 {
			n /= len(players)
		}
		c.Bytes += n * s.values * o.Size
		p.took = p.took[:0]
		g.Go(func() error {
			for i := range n {
				begun := time.Now()
				if err := s.call(p, i); err != nil {
					return err
				}
				p.took = append(p.took, time.Since(begun))
			}
			return p.finish()
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	c.Took = time.Since(begun)
	c.Client = measure.Used(0) - client
	if o.PID != 0 {
		c.Server = measure.Used(o.PID) - server
	}
	for _, p := range players {
		c.Each = append(c.Each, p.took...)
	}
	return c, nil
}
