package resp

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
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
