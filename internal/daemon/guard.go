package daemon

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/manifest"
	"github.com/kvstored/kvstored/internal/socket"
)

// guard knows which clients of an earlier process may still read what that has left in
// DRAM: under a lease that has ended with their connection, of which a transfer to a
// device may not have heard. Until each has said hello anew or has ended, or lease.max_age
// is over, nothing of it is used for anything else.
type guard struct {
	manifest *manifest.Manifest // nil: no client's connection is noted
	fewer    chan struct{}      // capacity 1

	mu   sync.Mutex
	left []manifest.Slot // of an earlier process
}

// newGuard knows the clients of an inheritance.
func newGuard(m *manifest.Manifest, in *inheritance) *guard {
	g := &guard{manifest: m, fewer: make(chan struct{}, 1)}
	if in.has() {
		g.left = in.left.Clients
	}
	return g
}

// meet notes a hello, whose client maps the arena or does not. It returns a function to call
// when the connection has ended, and whether the client may map it.
func (g *guard) meet(conn net.Conn, maps bool) (leave func(), may bool) {
	if !maps { // and is not that of a connection that did
		return func() {}, false
	}
	c := manifest.ClientOf(socket.PeerPID(conn))
	s, may := g.manifest.Join(c)
	g.mu.Lock() // behind Join: the process may end in between
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.left, func(s manifest.Slot) bool { return s.Client == c && c.PID != 0 })
	if i >= 0 {
		g.manifest.Leave(g.left[i])
		g.left = slices.Delete(g.left, i, i+1)
		select {
		case g.fewer <- struct{}{}:
		default:
		}
	}
	if !may {
		return func() {}, false
	}
	return func() { g.manifest.Leave(s) }, true
}

// waits is how many clients of an earlier process may still read, without those that have
// ended.
func (g *guard) waits() int {
	g.mu.Lock()
	left := slices.Clone(g.left)
	g.mu.Unlock()
	ended := map[manifest.Slot]bool{} // without the mutex: each hello takes it
	for _, s := range left {
		if s.Ended() {
			ended[s] = true
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = slices.DeleteFunc(g.left, func(s manifest.Slot) bool { // one that has come meanwhile is none of it
		if ended[s] {
			g.manifest.Leave(s)
		}
		return ended[s]
	})
	return len(g.left)
}

// guardEvery is how often processes are looked at.
const guardEvery = time.Second

// run lets what an earlier process has left be used as any other memory once that may be.
func (g *guard) run(ctx context.Context, d *Daemon) error {
	if !d.from.has() || !g.wait(ctx, d) {
		return nil
	}
	cpu.Reuse(d.cpu)
	d.stack.KeepQuotas() // nothing was evicted meanwhile
	d.log.Info().Msg("DRAM that was kept is used as any other")
	return nil
}

// wait returns true when no client reads that any more, and false when ctx has ended.
func (g *guard) wait(ctx context.Context, d *Daemon) bool {
	n := g.waits()
	if n == 0 {
		return true
	}
	d.log.Info().Int("clients", n).Stringer("limit", d.cfg.Lease.MaxAge).
		Msg("clients of an earlier process may still read DRAM: only what is free is filled until they have come again")
	limit := time.After(d.cfg.Lease.MaxAge)
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for ; n > 0; n = g.waits() {
		select {
		case <-ctx.Done():
			return false
		case <-limit:
			g.forget()
		case <-tick.C:
		case <-g.fewer:
		}
	}
	return true
}

// forget ends the wait for clients that have not come again.
func (g *guard) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.left {
		g.manifest.Leave(s)
	}
	g.left = nil
}
