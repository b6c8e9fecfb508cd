package resp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

const (
	// A host that gave wrong passwords waits before the next one is looked at:
	// firstDelay after one, twice as long after each more, up to mostDelay.
	firstDelay = 100 * time.Millisecond
	mostDelay  = 5 * time.Second
	// forgiveAfter is for how long a host's last wrong password counts.
	forgiveAfter = 5 * time.Minute
	// mostWaiting is how many logins of a host may wait. The others are refused
	// unseen: many connections must not guess faster than one.
	mostWaiting = 16
	// mostHosts is how many hosts are remembered; then the one whose last guess
	// is the oldest is forgotten.
	mostHosts = 1024
)

// guesses are the wrong passwords of hosts. Its zero value has none. The mutex
// is a leaf, and not held while a host waits.
type guesses struct {
	mu struct {
		sync.Mutex
		by map[netip.Addr]*guesser
	}
}

type guesser struct {
	wrong   int
	last    time.Time // of the wrong ones
	waiting int
}

// hostOf is where a client connects from; the zero Addr is a Unix socket.
func hostOf(conn net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().WithZone("").Unmap()
}

// await waits until a password of a host may be looked at. It is false where too
// many wait already, or ctx has ended.
func (g *guesses) await(ctx context.Context, host netip.Addr) bool {
	h, delay := g.begin(host)
	if h == nil {
		return delay == 0
	}
	defer g.end(h)
	return base.Sleep(ctx, delay) == nil
}

// begin returns how long a host has to wait, and counts it as waiting if it has
// to. Without a host and with a delay too many wait.
func (g *guesses) begin(host netip.Addr) (*guesser, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.mu.by[host]
	if h == nil {
		return nil, 0
	}
	if h.waiting == 0 && time.Since(h.last) >= forgiveAfter {
		delete(g.mu.by, host)
		return nil, 0
	}
	delay := mostDelay
	if n := h.wrong - 1; n < 16 {
		delay = min(delay, firstDelay<<n)
	}
	if h.waiting >= mostWaiting {
		return nil, delay
	}
	h.waiting++
	return h, delay
}

func (g *guesses) end(h *guesser) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.waiting--
}

// wrong notes a wrong password; right forgets those of a host.
func (g *guesses) wrong(host netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := g.mu.by[host]
	if h == nil {
		if g.mu.by == nil {
			g.mu.by = make(map[netip.Addr]*guesser)
		}
		if len(g.mu.by) >= mostHosts {
			g.forgetOldest()
		}
		h = new(guesser)
		g.mu.by[host] = h
	}
	h.wrong++
	h.last = time.Now()
}

func (g *guesses) right(host netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.mu.by, host)
}

// forgetOldest is called with the mutex held.
func (g *guesses) forgetOldest() {
	var oldest netip.Addr
	var last time.Time
	for host, h := range g.mu.by {
		if last.IsZero() || h.last.Before(last) {
			oldest, last = host, h.last
		}
	}
	delete(g.mu.by, oldest)
}

const (
	shelterFor = 2 * time.Second // at least, from being asked for to being read; twice that at most
	maxWanted  = 4096            // values that wait to be promoted
	promoters  = 4               // that do so at a time
)

// shelter holds a lease of the daemon's for each value that Has has found in this
// turn of shelterFor, and in the one before. Its mutex is a leaf.
type shelter struct {
	wanted chan key.Hash // to be promoted and sheltered
	mu     struct {
		sync.Mutex
		young, old []tier.Ref
		bytes      int64 // of young
		closed     bool
	}
}

// keep shelters the value of the name with that hash, after a promotion if it takes
// one. Where there is no room, or too much to promote, that costs speed and no more.
func (s *Store) keep(h key.Hash) {
	var p place
	p.at(h)
	var refs [1]tier.Ref
	n, err := s.o.Stack.Hold(ledger.Daemon, ledger.Lease, &p.Chain, 0, 1, refs[:])
	switch {
	case n == 1:
		s.take(refs[0])
	case err == nil:
		select {
		case s.shelter.wanted <- h:
		default:
		}
	}
}

func (s *Store) keepPromoting(ctx context.Context) {
	for {
		select {
		case h := <-s.shelter.wanted:
			var p place
			p.at(h)
			if ref, err := s.lease(ctx, ledger.Daemon, &p); err == nil {
				s.take(ref)
			}
		case <-ctx.Done():
			return
		}
	}
}

// take owns a lease of the daemon's from now on. Those of the last turn make room.
func (s *Store) take(ref tier.Ref) { s.letGo(s.shelter.push(ref, s.o.ShelterBytes/2)) }

func (s *Store) letGo(refs []tier.Ref) { s.o.Stack.Release(ledger.Daemon, ledger.Lease, refs) }

// push takes a value in, and returns the leases to let go for it: its own where the value is
// larger than most, which a turn may have.
func (sh *shelter) push(ref tier.Ref, most int64) (out []tier.Ref) {
	n := int64(len(ref.Block.Padded()))
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.mu.closed || n > most {
		return []tier.Ref{ref}
	}
	if sh.mu.bytes+n > most {
		out = sh.turn()
	}
	sh.mu.young = append(sh.mu.young, ref)
	sh.mu.bytes += n
	return out
}

// turn ends a turn, and returns the leases of the one before. It is called with the mutex
// held.
func (sh *shelter) turn() (out []tier.Ref) {
	out, sh.mu.old, sh.mu.young, sh.mu.bytes = sh.mu.old, sh.mu.young, nil, 0
	return out
}

// keepSheltered ends one turn after the other, and lets go of all when ctx ends.
func (s *Store) keepSheltered(ctx context.Context) {
	for base.Sleep(ctx, shelterFor) == nil {
		s.letGo(s.shelter.over(false))
	}
	s.letGo(s.shelter.over(true))
}

// over ends a turn; the last one ends both, and push takes nothing any more.
func (sh *shelter) over(last bool) (out []tier.Ref) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if out = sh.turn(); last {
		sh.mu.closed = true
		out = append(out, sh.turn()...)
	}
	return out
}
