package attack

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// longRequests has the daemon build much for each byte that it is sent: chains of
// a token a chunk, and chains by reference to a job.
func longRequests(a *attackers, _ *key.Chain) {
	short := load.Space
	short.ChunkTokens, short.Method = 1, key.SHA256
	tokens := wire.ViewU32s(make([]uint32, a.names))
	a.each(8*a.few, func(int) {
		a.greeted(0, func(c net.Conn, _ uint32) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			ask := wire.AppendRequest(nil, wire.OpOpenSpace, 2, &wire.OpenSpaceRequest{Space: short})
			ask = wire.AppendRequest(ask, wire.OpLookup, 3, &wire.LookupRequest{Chain: wire.Chain{Space: 1, Form: wire.FormTokens, Tokens: tokens}})
			for a.send(c, ask) {
			}
		})
	})
	a.each(a.few, func(int) {
		a.greeted(0, func(c net.Conn, space uint32) {
			if !a.send(c, wire.AppendRequest(nil, wire.OpPrefetch, 2, &wire.PrefetchRequest{Chain: unknownPrompt(space, a.names/8)})) {
				return
			}
			var h [wire.HeaderBytes]byte
			if _, err := io.ReadFull(c, h[:]); err != nil {
				return
			}
			body := make([]byte, wire.DecodeHeader(h[:]).BodyBytes)
			if _, err := io.ReadFull(c, body); err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c) }()
			ref := wire.Chain{Form: wire.FormRef, ID: binary.LittleEndian.Uint64(body)}
			for id := uint64(3); ; id++ {
				ask := wire.AppendRequest(nil, wire.OpDelete, id, &wire.DeleteRequest{Chain: ref})
				if !a.send(c, wire.AppendRequest(ask, wire.OpWarm, id|1<<32, &wire.WarmRequest{Chain: ref})) {
					return
				}
			}
		})
	})
}

// manyNames leaves names with the daemon on every connection: of spaces, pins,
// clients.
func manyNames(a *attackers, known *key.Chain) {
	name := strings.Repeat("x", 60<<10)
	a.each(a.few, func(int) {
		a.with("unix", a.resp, func(c net.Conn) {
			a.send(c, respCommand("CLIENT", "SETNAME", strings.Repeat("x", 7<<20)))
			a.hold(c)
		})
	})
	a.each(8*a.few, func(i int) {
		a.greeted(0, func(c net.Conn, space uint32) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for n := range 1000 {
				sp := load.Space
				sp.Model = fmt.Sprintf("%s%d-%d", name[:1000], i, n)
				ask := wire.AppendRequest(nil, wire.OpOpenSpace, uint64(2*n), &wire.OpenSpaceRequest{Space: sp})
				ask = wire.AppendRequest(ask, wire.OpPin, uint64(2*n+1), &wire.PinRequest{Chain: knownPrompt(space, known), LookupID: fmt.Sprint(n, name)})
				if !a.send(c, ask) {
					return
				}
			}
			<-a.ctx.Done()
		})
	})
}

// tinyValues stores values of one byte through the Redis front end, each under a new
// name, so that the daemon has more and more to know.
func tinyValues(a *attackers, _ *key.Chain) {
	var connections atomic.Int64
	a.each(2*a.few, func(int) {
		a.with("unix", a.resp, func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			number := connections.Add(1)
			for n := 0; ; n++ {
				var pipeline []byte
				for i := range 64 {
					pipeline = append(pipeline, respCommand("SET", fmt.Sprintf("tiny %d %d %d", number, n, i), "x")...)
				}
				if !a.send(c, pipeline) {
					return
				}
			}
		})
	})
}

// fewEvicted is until more tiny values were stored than may be known.
func fewEvicted(a *attackers) bool {
	return a.metric(`kvstored_disk_evicted_chunks_total{reason="entries"}`) < a.known/8 && a.metric(`kvstored_tier_entries{tier="disk"}`) <= a.known
}

// bounded fails the test where a tier knows more chunks than there is memory for.
func (p *prey) bounded() {
	p.t.Helper()
	for _, tier := range []string{"cpu", "disk"} {
		if n := p.metric(fmt.Sprintf("kvstored_tier_entries{tier=%q}", tier)); n > p.known {
			p.t.Errorf("%d chunks in tier %s, of at most %d", n, tier, p.known)
		}
	}
}

// metric is the value of a metric, 0 where it is not exported. Attackers may have every
// connection of the listener: the daemon closes another one at once, and is asked again.
func (p *prey) metric(name string) (n int) {
	p.t.Helper()
	text, err := p.metrics()
	for end := time.Now().Add(patience); err != nil; text, err = p.metrics() {
		if time.Now().After(end) {
			p.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, value, found := strings.Cut(text, "\n"+name+" "); found {
		var f float64
		if _, err := fmt.Sscan(value, &f); err != nil {
			p.t.Fatalf("%s: %v", name, err)
		}
		n = int(f)
	}
	return n
}
