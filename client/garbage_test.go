package client

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/wire"
)

// TestBrokenHello: Dial refuses a reply to hello that contradicts itself.
func TestBrokenHello(t *testing.T) {
	short, err := os.Create(filepath.Join(t.TempDir(), "short"))
	if err != nil {
		t.Fatal(err)
	}
	defer short.Close()
	if err := short.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		change func(*setup)
		want   error
	}{
		{"version", func(s *setup) { s.hello.Version = 9 }, ErrProtocol},
		{"descriptor missing", func(s *setup) { s.hello.Granted |= wire.FeatureArena; s.hello.ArenaBytes = 4096 }, ErrProtocol},
		{"descriptor unasked", func(s *setup) { s.files = []*os.File{short} }, ErrProtocol},
		{"memory too short", func(s *setup) {
			s.hello.Granted |= wire.FeatureArena
			s.hello.ArenaBytes, s.files = 1<<40, []*os.File{short}
		}, ErrProtocol},
		{"no memory", func(s *setup) { s.hello.Granted |= wire.FeatureArena; s.files = []*os.File{short} }, ErrProtocol},
		{"puts without a window", func(s *setup) { s.hello.Puts = wire.PutStaged }, ErrProtocol},
		{"denied", func(s *setup) {
			s.raw = func(f *fake, h wire.Header) {
				f.write(wire.AppendError(nil, h.Op, h.ID, ErrDenied, wire.Refusal(wire.CodeDenied, "uid 1 is not in allow_uids")))
			}
		}, ErrDenied},
		{"noise", func(s *setup) {
			s.raw = func(f *fake, _ wire.Header) { f.write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) }
		}, ErrProtocol},
		{"silence", func(s *setup) { s.raw = func(f *fake, _ wire.Header) { f.conn.Close() } }, ErrDisconnected},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := inlineSetup()
				tt.change(&s)
				if c, err := dial(t, s, (*fake).drain); !errors.Is(err, tt.want) || c != nil {
					t.Errorf("got %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestGarbage: an answer that makes no sense ends the connection with
// ErrProtocol, and nothing worse.
func TestGarbage(t *testing.T) {
	frame := func(h wire.Header, body ...byte) []byte {
		h.BodyBytes = uint32(len(body))
		return append(h.Append(nil), body...)
	}
	lookup := func(c *Client, t *testing.T) error {
		_, err := c.Lookup(testContext(t), Tokens([]uint32{1}), 0)
		return err
	}
	prefetch := func(c *Client, t *testing.T) error {
		j, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			return err
		}
		_, err = j.Wait(testContext(t), All)
		return err
	}
	put := func(c *Client, t *testing.T) error {
		_, err := c.Put(testContext(t), Tokens([]uint32{1}), 0, [][]byte{{1}})
		return err
	}
	started := func(f *fake, s *wire.JobState) {
		f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning}})
		f.push(5, s)
	}
	tests := []struct {
		name   string
		call   func(*Client, *testing.T) error
		answer func(*fake)
	}{
		{"unknown id", lookup, func(f *fake) { f.write(frame(wire.Header{Kind: wire.KindReply, Op: wire.OpLookup, ID: 99})) }},
		{"other op", lookup, func(f *fake) { f.write(frame(wire.Header{Kind: wire.KindReply, Op: wire.OpPing, ID: f.next().ID})) }},
		{"a request", lookup, func(f *fake) { f.write(frame(wire.Header{Op: wire.OpLookup, ID: f.next().ID})) }},
		{"unknown kind", lookup, func(f *fake) { f.write(frame(wire.Header{Kind: 9, Op: wire.OpLookup})) }},
		{"cut short", lookup, func(f *fake) {
			f.write(frame(wire.Header{Kind: wire.KindReply, Op: wire.OpLookup, ID: f.next().ID}, 1, 2))
		}},
		{"error without text", lookup, func(f *fake) {
			f.write(frame(wire.Header{Kind: wire.KindReply, Op: wire.OpLookup, ID: f.next().ID, Code: ErrDenied}, 9, 0))
		}},
		{"too large", lookup, func(f *fake) { f.write(wire.Header{Kind: wire.KindReply, BodyBytes: math.MaxUint32}.Append(nil)) }},
		{"push cut short", prefetch, func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning}})
			f.write(frame(wire.Header{Kind: wire.KindPush, Op: wire.OpPrefetch, ID: 5}, 1))
		}},
		{"refs with a gap", prefetch, func(f *fake) { started(f, &wire.JobState{Code: wire.CodeRunning, First: 1, Refs: refs(wire.Ref{})}) }},
		{"a ref longer than any chunk", prefetch, func(f *fake) {
			started(f, &wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(wire.Ref{Length: wire.MaxPayloadBytes + 1})})
		}},
		{"ready without refs", prefetch, func(f *fake) { started(f, &wire.JobState{Code: wire.CodeRunning, Ready: ready(3)}) }},
		{"too many results", put, func(f *fake) {
			f.reply(f.next(), &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{}).Add(wire.Stored{})})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := mustDial(t, inlineSetup(), func(f *fake) {
					tt.answer(f)
					f.drain()
				})
				if err := tt.call(c, t); !errors.Is(err, ErrProtocol) || !errors.Is(err, ErrDisconnected) {
					t.Errorf("got %v", err)
				}
				if err := c.Ping(testContext(t)); !errors.Is(err, ErrProtocol) {
					t.Errorf("after it: %v", err)
				}
			})
		})
	}
}

// TestLateNews: states without refs behind the known ones, pushes of unknown
// jobs and operations are all in order.
func TestLateNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning}})
			f.push(6, &wire.JobState{Code: wire.CodeRunning, First: 9, Refs: refs(wire.Ref{})})
			f.write(wire.AppendPush(nil, 200, 5, wire.EmptyReply{}))
			f.push(5, &wire.JobState{Code: wire.CodeRunning, Ready: ready(2), Refs: refs(wire.Ref{Sum: 1}, wire.Ref{Sum: 2})})
			f.push(5, &wire.JobState{Code: Complete, First: math.MaxUint32, Ready: ready(2)})
			f.drain()
		})
		j, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := j.Wait(testContext(t), All)
		if err != nil || !s.Done || s.Ready != ready(2) {
			t.Fatalf("%+v, %v", s, err)
		}
		if sum, err := j.Sum(1); err != nil || sum != 2 {
			t.Errorf("%d, %v", sum, err)
		}
	})
}

// FuzzServer sends a client arbitrary bytes while it makes calls.
func FuzzServer(f *testing.F) {
	for _, m := range []wire.Message{
		&wire.PrefetchReply{Job: 1, State: wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(wire.Ref{Length: 3})}},
		&wire.GetReply{Chunks: wire.Chunks(nil).Add(wire.Chunk{Length: 3}), Payloads: []byte("abc")},
	} {
		f.Add(wire.AppendReply(nil, wire.OpPrefetch, 1, m))
	}
	f.Fuzz(func(t *testing.T, noise []byte) {
		c, err := dial(t, inlineSetup(), func(f *fake) {
			f.next()
			f.write(noise)
			f.conn.Close()
		})
		if err != nil {
			t.Fatal(err)
		}
		j, err := c.Prefetch(testContext(t), Tokens([]uint32{1, 2}), PrefetchOptions{})
		if err != nil {
			return
		}
		j.Chunk(testContext(t), 0)
		j.Wait(testContext(t), All)
		j.Release(testContext(t))
	})
}
