package resp

import (
	"context"
	"net"
	"net/netip"
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
	// mostHosts is how many hosts are remembered, about: then one whose last guess is old is
	// forgotten.
	mostHosts = 1024
)

// guesses are the wrong passwords of hosts.
type guesses struct {
	by *base.Table[netip.Addr, guesser]
}

type guesser struct {
	wrong   int
	last    time.Time // of the wrong ones
	waiting int
}

func newGuesses() guesses { return guesses{base.NewTable[netip.Addr, guesser](mostHosts)} }

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
	var delay time.Duration // 0: the host has given no wrong one
	var many bool
	g.by.Change(host, func(h guesser) (guesser, bool) {
		if h.wrong == 0 || h.waiting == 0 && time.Since(h.last) >= forgiveAfter {
			return h, false
		}
		if many = h.waiting >= mostWaiting; !many {
			h.waiting++
		}
		delay = min(mostDelay, firstDelay<<min(h.wrong-1, 16))
		return h, true
	})
	if delay == 0 || many {
		return !many
	}
	defer g.by.Change(host, func(h guesser) (guesser, bool) {
		h.waiting = max(0, h.waiting-1) // it may have been forgotten meanwhile, and come anew
		return h, h.wrong > 0
	})
	return base.Sleep(ctx, delay) == nil
}

// wrong notes a wrong password; right forgets those of a host.
func (g *guesses) wrong(host netip.Addr) {
	g.by.Change(host, func(h guesser) (guesser, bool) { return guesser{h.wrong + 1, time.Now(), h.waiting}, true })
}

func (g *guesses) right(host netip.Addr) {
	g.by.Change(host, func(h guesser) (guesser, bool) { return h, false })
}
