package daemon

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/socket"
)

// guard knows which clients of an earlier process may still read what that has left in
// DRAM: under a lease that has ended with their connection, of which a transfer to a
// device may not have heard. Until each has said hello anew or has ended, or lease.max_age
// is over, nothing of it is used for anything else.
type guard struct {
	manifest *cpu.Manifest // nil: no client's connection is noted
	fewer    chan struct{} // capacity 1

	mu   sync.Mutex
	left []cpu.Slot // of an earlier process
	live map[cpu.Slot]bool
}

// newGuard knows the clients of an inheritance.
func newGuard(m *cpu.Manifest, in *inheritance) *guard {
	g := &guard{manifest: m, fewer: make(chan struct{}, 1), live: map[cpu.Slot]bool{}}
	if in.has() {
		g.left = in.left.Clients
	}
	return g
}

// meet notes a hello, whose client maps the arena or does not. It returns a function to call
// when the connection has ended, and whether the client may map it.
func (g *guard) meet(conn net.Conn, maps bool, leaseAge time.Duration) (leave func(), may bool) {
	if !maps { // and is not that of a connection that did
		return func() {}, false
	}
	c := cpu.ClientOf(socket.PeerPID(conn))
	s, may := g.manifest.Join(c, leaseAge)
	g.mu.Lock() // behind Join: the process may end in between
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.left, func(s cpu.Slot) bool { return s.Client == c && c.PID != 0 })
	if i >= 0 {
		g.manifest.Leave(g.left[i])
		g.left = slices.Delete(g.left, i, i+1)
		base.Poke(g.fewer)
	}
	if !may {
		return func() {}, false
	}
	g.live[s] = true
	return func() { g.end(s) }, true
}

// end notes that a connection has ended.
func (g *guard) end(s cpu.Slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.live, s)
	g.manifest.Leave(s)
}

// disownEvery is how often the processes of live connections are looked at.
const disownEvery = 10 * time.Second

// watch disowns connections until ctx ends.
func (g *guard) watch(ctx context.Context) error {
	for g.manifest != nil && base.Sleep(ctx, disownEvery) == nil {
		g.disown()
	}
	return nil
}

// disown notes which live connections another process has by now, by a fork or a descriptor
// handed over: the one that connected has ended. The next process waits for lease.max_age.
func (g *guard) disown() {
	g.mu.Lock()
	live := slices.Collect(maps.Keys(g.live))
	g.mu.Unlock()
	for s := range endedOf(live) {
		g.mu.Lock()
		if g.live[s] { // it may have ended meanwhile
			delete(g.live, s)
			g.manifest.Disown(s)
		}
		g.mu.Unlock()
	}
}

// endedOf is those of some clients that have ended. It is called without the mutex, which
// each hello takes.
func endedOf(slots []cpu.Slot) map[cpu.Slot]bool {
	ended := map[cpu.Slot]bool{}
	for _, s := range slots {
		if s.Ended() {
			ended[s] = true
		}
	}
	return ended
}

// waits is how many clients of an earlier process may still read, without those that have
// ended.
func (g *guard) waits() int {
	g.mu.Lock()
	left := slices.Clone(g.left)
	g.mu.Unlock()
	ended := endedOf(left)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left = slices.DeleteFunc(g.left, func(s cpu.Slot) bool { // one that has come meanwhile is none of it
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
	d.store.Operator.KeepQuotas() // nothing was evicted meanwhile
	d.log.Info().Msg("DRAM that was kept is used as any other")
	return nil
}

// wait returns true when no client reads that any more, and false when ctx has ended.
func (g *guard) wait(ctx context.Context, d *Daemon) bool {
	n := g.waits()
	if n == 0 {
		return true
	}
	limit := g.limit(d.cfg.Lease.MaxAge)
	d.log.Info().Int("clients", n).Stringer("limit", limit).
		Msg("clients of an earlier process may still read DRAM: only what is free is filled until they have come again")
	over := time.After(limit)
	tick := time.NewTicker(guardEvery)
	defer tick.Stop()
	for ; n > 0; n = g.waits() {
		select {
		case <-ctx.Done():
			return false
		case <-over:
			g.forget()
		case <-tick.C:
		case <-g.fewer:
		}
	}
	return true
}

// limit is how long a lease of an earlier process may go on: lease.max_age was another then,
// perhaps.
func (g *guard) limit(age time.Duration) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.left {
		age = max(age, s.LeaseAge)
	}
	return age
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

const (
	// ownFiles are the descriptors that the daemon has besides those of clients:
	// listeners, segments of the disk tier, connections to a bucket, HTTP clients.
	ownFiles = 512
	// connectionFiles are the files of a connection: its socket, the one it sleeps on for
	// that, and its staging window; and one that waits to be refused beside it.
	connectionFiles = 4
	// leastConnections are let in whatever the limit on open files is.
	leastConnections = 64
)

// openFiles is the limit on open files of this process, which the Go runtime has
// raised as far as it may; 0 = not known.
func openFiles() uint64 {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return uint64(r.Cur) //nolint:unconvert // signed on some systems
}

// limitsWithin are the limits, with as many connections as so many open files have
// room for: where none is left, the connections of one user would keep out
// administrators and take the files of the disk tier. files 0 bounds nothing.
func limitsWithin(l config.Limits, files uint64) config.Limits {
	if room := (max(files, ownFiles) - ownFiles) / connectionFiles; files > 0 && room < uint64(l.Connections) {
		l.Connections = max(int(room), leastConnections)
		l.UIDConnections = min(l.UIDConnections, l.Connections)
	}
	return l
}

// fileWarnings says which connections there is no room for.
func fileWarnings(c *config.Config, files uint64) []string {
	n := limitsWithin(c.Limits, files).Connections
	if n == c.Limits.Connections {
		return nil
	}
	return []string{fmt.Sprintf("limits.connections: %d connections may take %d open files, and %d are allowed here: the daemon takes %d connections; raise that limit (ulimit -n, or LimitNOFILE= of a systemd unit), or lower the key",
		c.Limits.Connections, ownFiles+connectionFiles*c.Limits.Connections, files, n)}
}
