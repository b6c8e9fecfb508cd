package resp

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func (g *guesses) remembered() (n int) {
	g.by.Each(func(guesser) { n++ })
	return n
}

func host(n byte) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, n}) }

// TestGuesses: each wrong password doubles the wait of its host, up to the most,
// and of no other; a right one ends it, and so does time.
func TestGuesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		took := func(h netip.Addr) time.Duration {
			start := time.Now()
			if !g.await(t.Context(), h) {
				t.Error("a host is refused")
			}
			return time.Since(start)
		}
		if d := took(host(1)); d != 0 {
			t.Errorf("the first password waits for %v", d)
		}
		for want := firstDelay; want < 4*mostDelay; want *= 2 {
			g.wrong(host(1))
			if d := took(host(1)); d != min(want, mostDelay) {
				t.Errorf("it waits for %v, want %v", d, min(want, mostDelay))
			}
			if d := took(host(2)); d != 0 {
				t.Errorf("another host waits for %v", d)
			}
		}
		g.right(host(1))
		if d := took(host(1)); d != 0 {
			t.Errorf("after the right password it waits for %v", d)
		}
		for range 100 { // more than a shift takes
			g.wrong(host(1))
		}
		if d := took(host(1)); d != mostDelay {
			t.Errorf("after 100 wrong passwords it waits for %v, want %v", d, mostDelay)
		}
		time.Sleep(forgiveAfter)
		if d := took(host(1)); d != 0 || g.remembered() != 0 {
			t.Errorf("after %v it waits for %v; %d hosts are remembered", forgiveAfter, d, g.remembered())
		}
	})
}

// TestManyGuess: a host has few passwords looked at at a time, and a client that
// leaves gives its place back.
func TestManyGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		g.wrong(host(1))
		ctx, cancel := context.WithCancel(t.Context())
		looked := make(chan bool, mostWaiting)
		for range mostWaiting {
			go func() { looked <- g.await(ctx, host(1)) }()
		}
		synctest.Wait()
		if g.await(t.Context(), host(1)) {
			t.Error("one more is looked at")
		}
		if !g.await(t.Context(), host(2)) {
			t.Error("another host is refused")
		}
		cancel()
		for range mostWaiting {
			if <-looked {
				t.Error("a client that has left is looked at")
			}
		}
		if !g.await(t.Context(), host(1)) {
			t.Error("the places are not given back")
		}
	})
}

// TestForgivenMeanwhile: a host whose guesses are forgiven while one more waits, and which then
// guesses wrong again, is forgiven in time like every other.
func TestForgivenMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		g.wrong(host(1))
		looked := make(chan bool)
		go func() { looked <- g.await(t.Context(), host(1)) }()
		synctest.Wait()
		g.right(host(1))
		g.wrong(host(1))
		if !<-looked {
			t.Error("the one that waited is refused")
		}
		time.Sleep(forgiveAfter)
		begun := time.Now()
		if g.await(t.Context(), host(1)); time.Since(begun) != 0 || g.remembered() != 0 {
			t.Errorf("after %v it waits for %v; %d hosts are remembered", forgiveAfter, time.Since(begun), g.remembered())
		}
	})
}

// TestHostsAreBounded: guesses from many addresses do not fill memory.
func TestHostsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGuesses()
		for i := range 2 * mostHosts {
			g.wrong(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		}
		if n := g.remembered(); n > mostHosts || n < mostHosts/2 {
			t.Errorf("%d hosts are remembered, want %d at most", n, mostHosts)
		}
		last := netip.AddrFrom4([4]byte{10, 1, byte((2*mostHosts - 1) >> 8), 0xff})
		if g.by.Find(last).wrong != 1 {
			t.Error("the last host is forgotten")
		}
	})
}
