package attack

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

var attackScale = flag.String("attacks", "short", "scale of TestAttacks: short, or full as in docs/guarantees.md, which takes minutes")

// scale is how much attackers have.
type scale struct {
	crowd int           // connections where they are the point
	few   int           // connections where each costs something
	names int           // of one deletion
	for_  time.Duration // how long an attack goes on
}

func scaleOf(t *testing.T) scale {
	switch *attackScale {
	case "short":
		return scale{crowd: 300, few: 8, names: 20_000, for_: 500 * time.Millisecond}
	case "full":
		return scale{crowd: 4000, few: 64, names: 1_000_000, for_: 20 * time.Second}
	}
	t.Fatalf("-attacks %q: use short or full", *attackScale)
	return scale{}
}

// attackers are the connections of one attack.
type attackers struct {
	scale
	*prey
	ctx     context.Context
	working sync.WaitGroup
	sent    atomic.Int64 // bytes
}

// each has n attackers do something again and again, until the attack is over.
func (a *attackers) each(n int, do func(i int)) {
	for i := range n {
		a.working.Go(func() {
			for a.ctx.Err() == nil {
				do(i)
				select { // a daemon that refuses is asked again soon
				case <-time.After(10 * time.Millisecond):
				case <-a.ctx.Done():
				}
			}
		})
	}
}

// with opens a connection for use. It is closed then, and with the attack.
func (a *attackers) with(network, addr string, use func(net.Conn)) {
	conn, err := (&net.Dialer{}).DialContext(a.ctx, network, addr)
	if err != nil {
		return // refused: there are too many
	}
	defer conn.Close()
	defer context.AfterFunc(a.ctx, func() { _ = conn.Close() })()
	use(conn)
}

// greeted is with for the daemon's own socket, behind the hello.
func (a *attackers) greeted(wants wire.Features, use func(c net.Conn, space uint32)) {
	a.with("unix", a.d.Socket, func(conn net.Conn) {
		c, err := wire.NewConn(conn.(*net.UnixConn))
		if err != nil || !a.send(conn, hello(wants)) {
			return
		}
		h, body, files, err := c.ReadFrameFiles()
		for _, f := range files {
			defer f.Close() // kept open, and never mapped
		}
		var reply wire.HelloReply
		if err == nil && h.Code == wire.CodeOK && reply.Decode(body) == nil {
			use(conn, reply.Space.Handle)
		}
	})
}

// hold keeps a connection until the daemon or the attack ends it.
func (a *attackers) hold(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }

// send is false when nothing can be sent any more.
func (a *attackers) send(c net.Conn, b []byte) bool {
	n, err := c.Write(b)
	a.sent.Add(int64(n))
	return err == nil
}

func hello(wants wire.Features) []byte {
	return wire.AppendRequest(nil, wire.OpHello, 1, &wire.HelloRequest{
		MinVersion: 1, MaxVersion: wire.Version, Wants: wants, Name: "attacker", HasSpace: true, Space: load.Space,
	})
}

// respCommand is a command as clients send it.
func respCommand(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, arg := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b
}

// unknownPrompt is a prompt of n chunks that no client has stored.
func unknownPrompt(space uint32, n int) wire.Chain {
	ch := wire.Chain{Space: space, Form: wire.FormHashes, Width: 16, Hashes: make([]byte, 16*n)}
	for i := range n {
		binary.LittleEndian.PutUint64(ch.Hashes[16*i:], uint64(i)<<32|77)
	}
	return ch
}

// knownPrompt is what a witness has stored.
func knownPrompt(space uint32, chain *key.Chain) wire.Chain {
	ch := wire.Chain{Space: space, Form: wire.FormHashes, Width: 16}
	for _, h := range chain.Hashes {
		ch.Hashes = append(ch.Hashes, h[:]...)
	}
	return ch
}

// attacks is what rude clients do, or broken ones.
var attacks = []struct {
	name  string
	begin func(a *attackers, known *key.Chain)
	// goesOn reports that it has not come to its point yet; nil: it has when something was sent.
	goesOn func(a *attackers) bool
}{
	{"slow hellos", func(a *attackers, _ *key.Chain) {
		a.each(a.crowd, func(int) {
			a.with("unix", a.d.Socket, func(c net.Conn) {
				for _, b := range hello(0) {
					if !a.send(c, []byte{b}) {
						return
					}
					time.Sleep(100 * time.Millisecond)
				}
			})
		})
	}, nil},
	{"half frames", func(a *attackers, _ *key.Chain) {
		put := wire.AppendRequest(nil, wire.OpPut, 2, wire.EmptyRequest{})
		binary.LittleEndian.PutUint32(put, 60<<20) // the length of the body
		part := make([]byte, 8<<20)
		a.each(a.few, func(int) {
			a.greeted(0, func(c net.Conn, _ uint32) { _ = a.send(c, put) && a.send(c, part) && a.send(c, part); a.hold(c) })
		})
		a.each(a.few, func(int) {
			a.with("unix", a.resp, func(c net.Conn) {
				if a.send(c, []byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$60000000\r\n")) && a.send(c, part) {
					a.hold(c)
				}
			})
		})
	}, nil},
	{"many connections", func(a *attackers, _ *key.Chain) {
		a.each(a.crowd, func(int) { a.greeted(0, func(c net.Conn, _ uint32) { a.hold(c) }) })
		a.each(a.crowd, func(int) { a.with("unix", a.resp, a.hold) })
	}, nil},
	{"deaf pipeliners", func(a *attackers, known *key.Chain) {
		value := strings.Repeat("x", 1<<20)
		a.with("unix", a.resp, func(c net.Conn) { a.send(c, respCommand("SET", "large", value)); _, _ = c.Read(make([]byte, 5)) })
		pipeline := append(respCommand("GET", "large"), respCommand("ECHO", value[:4<<10])...)
		a.each(a.few, func(int) {
			a.with("unix", a.resp, func(c net.Conn) {
				for a.send(c, pipeline) {
				}
			})
		})
		a.each(a.few, func(int) {
			a.greeted(0, func(c net.Conn, space uint32) {
				ask := wire.AppendRequest(nil, wire.OpPrefetch, 2, &wire.PrefetchRequest{Chain: knownPrompt(space, known)})
				for a.send(c, ask) {
				}
			})
		})
	}, nil},
	{"deaf inline gets", func(a *attackers, known *key.Chain) {
		a.each(a.few, func(int) {
			a.greeted(0, func(c net.Conn, space uint32) {
				ask := wire.AppendRequest(nil, wire.OpGet, 2, &wire.GetRequest{Chain: knownPrompt(space, known)})
				for a.send(c, ask) {
				}
			})
		})
	}, nil},
	{"untouched windows", func(a *attackers, _ *key.Chain) {
		a.each(a.crowd, func(int) {
			a.greeted(wire.FeatureArena|wire.FeatureStaging, func(c net.Conn, _ uint32) { a.hold(c) })
		})
	}, nil},
	{"deletes by clients that left", func(a *attackers, _ *key.Chain) {
		names := []string{"DEL"}
		for i := range a.names {
			names = append(names, fmt.Sprint("name", i))
		}
		del := respCommand(names...)
		a.each(a.few, func(int) { a.with("unix", a.resp, func(c net.Conn) { a.send(c, del) }) })
		a.each(a.few, func(int) {
			a.greeted(0, func(c net.Conn, space uint32) {
				request := wire.AppendRequest(nil, wire.OpDelete, 2, &wire.DeleteRequest{Chain: unknownPrompt(space, a.names)})
				for range 2 {
					a.send(c, request)
				}
			})
		})
	}, nil},
	{"long requests", longRequests, nil},
	{"many names", manyNames, nil},
	{"tiny values", tinyValues, fewEvicted},
	{"pages", pages, nil},
	{"waiting requests", waitingRequests, nil},
	{"descriptors", descriptors, nil},
	{"lengths", lengths, nil},
	{"garbage", func(a *attackers, _ *key.Chain) {
		for _, at := range [][2]string{{"unix", a.d.Socket}, {"unix", a.resp}, {"tcp", a.respTCP}, {"tcp", a.adminTCP}} {
			a.each(a.few, func(i int) {
				rng := rand.NewChaCha8([32]byte{byte(i)})
				b := make([]byte, 64<<10)
				_, _ = rng.Read(b) // never fails
				a.with(at[0], at[1], func(c net.Conn) {
					for a.send(c, b) {
					}
				})
			})
		}
	}, nil},
	{"wrong passwords", func(a *attackers, _ *key.Chain) {
		a.each(a.few, func(i int) {
			a.with("tcp", a.respTCP, func(c net.Conn) {
				reply := make([]byte, 1<<10)
				for n := 0; a.send(c, respCommand("AUTH", fmt.Sprint("guess", i, n))); n++ {
					if _, err := c.Read(reply); err != nil {
						return
					}
				}
			})
		})
	}, nil},
}

// besieged is held for reading during an attack, and for writing during one amid which the
// daemon ends: it has five seconds for that, and no other attack takes the processors.
var besieged sync.RWMutex

// under runs an attack while do lasts, and returns when all attackers have left.
func (p *prey) under(t *testing.T, l sync.Locker, i int, s scale, known *key.Chain, do func(a *attackers)) {
	t.Helper()
	l.Lock()
	defer l.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	a := &attackers{scale: s, prey: p, ctx: ctx}
	attacks[i].begin(a, known)
	do(a)
	stop()
	a.working.Wait()
}

// Under every attack the daemon lives within a memory cgroup, serves a client of another
// user, each of whose calls is answered, and ends in time with everything closed; once
// the attackers have left, it is as before.
func TestAttacks(t *testing.T) {
	t.Parallel()
	if daemon.Raced(t) {
		t.Skip("with the race detector memory is another matter")
	}
	s := scaleOf(t)
	for i, attack := range attacks {
		t.Run(attack.name, func(t *testing.T) {
			t.Parallel()
			p := newPrey(t)
			w := newWitness(t, p)
			if err := w.round(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.d.Flush()
			before, err := p.footprint()
			if err != nil {
				t.Fatal(err)
			}
			if attack.goesOn != nil { // the books of what it stores stay
				before.anon += int64(p.known) * bookBytes
			}
			var during footprint
			p.under(t, besieged.RLocker(), i, s, w.chains[0], func(a *attackers) {
				ctx, over := context.WithTimeout(t.Context(), s.for_)
				defer over()
				w.run(ctx)
				p.lives()
				for end := time.Now().Add(patience); a.sent.Load() == 0 || attack.goesOn != nil && attack.goesOn(a); time.Sleep(10 * time.Millisecond) {
					if p.lives(); time.Now().After(end) {
						t.Fatal("the attack does not come to its point")
					}
				}
				p.bounded()
				if during, err = p.footprint(); err != nil {
					t.Logf("during the attack the daemon does not say what it has: %v", err)
				}
			})
			begun := time.Now()
			after := p.rests(before)
			t.Logf("before %v\nduring %v\n%.1f s after %v\na client that behaves: %d rounds, %d errors\n%s",
				before, during, time.Since(begun).Seconds(), after, w.rounds, w.errs, p.heap())
			if os.Getuid() == 0 && (w.errs > 0 || w.rounds == 0) { // else it shares the attackers' limits
				t.Errorf("a client of another user was not always served: %v", w.err)
			}
			if err := w.round(t.Context()); err != nil {
				t.Errorf("after the attack: %v", err)
			}
			p.under(t, &besieged, i, s, w.chains[0], func(*attackers) {
				time.Sleep(s.for_ / 2)
				p.ends()
			})
		})
	}
}
