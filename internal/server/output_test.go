package server

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// pair is two ends of a connection with small buffers.
func pair(t *testing.T) (a, b *wire.Conn) {
	t.Helper()
	near, far := pipe.NewOf(&net.UnixAddr{Net: "unix"}, 4096)
	end := func(nc net.Conn) *wire.Conn {
		t.Cleanup(func() { nc.Close() })
		c, err := wire.NewConn(nc)
		if err != nil {
			t.Fatal(err)
		}
		c.SetMaxBody(wire.MaxBodyBytes)
		return c
	}
	return end(near), end(far)
}

// numbered appends the frame of writer's n-th message: its number, then padding
// that tells where a frame was torn.
func numbered(dst []byte, writer, n uint64, padding int) []byte {
	start := len(dst)
	dst = wire.Begin(dst, wire.Header{Kind: wire.KindReply, Op: wire.OpPing, ID: writer})
	dst = binary.LittleEndian.AppendUint64(dst, n)
	for range (padding + 7) &^ 7 {
		dst = append(dst, byte(n))
	}
	dst = wire.End(dst, start)
	return dst
}

// However many write and however slowly the client reads: every frame arrives
// whole, once, and in its writer's order; a job's pushes never take back a
// growth, and the last one has the job's last state.
func TestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, messages, jobs, growths = 8, 150, 5, 400
		limits := Limits{QueueBytes: 64 << 10, StallTimeout: time.Minute}
		conn, peer := pair(t)
		s := &Server{o: Options{Limits: limits.orDefault()}}
		c := &session{server: s, conn: conn}
		c.out = output{conn: conn, limits: &s.o.Limits, spawn: c.waiting.Go}
		for w := range uint64(writers) {
			c.waiting.Go(func() {
				r := rand.New(rand.NewPCG(w, 1))
				var buf []byte
				for n := range uint64(messages) {
					size := r.IntN(200)
					if r.IntN(50) == 0 {
						size = r.IntN(100 << 10)
					}
					buf = numbered(buf[:0], w, n, size)
					c.out.send(buf)
					for i := range buf { // the caller's again
						buf[i] = 0xee
					}
					if full := c.out.room(); full != nil && r.IntN(2) == 0 {
						<-full
					}
				}
			})
		}
		for id := range uint64(jobs) {
			j := &job{id: id, session: c, prompt: one()}
			c.waiting.Go(func() {
				for range growths {
					j.mu.Lock()
					j.mu.in[tier.Disk].Chunks++
					j.mu.Unlock()
					c.out.push(j)
				}
			})
		}
		var wg sync.WaitGroup
		var next [writers]uint64
		var state [jobs]uint32
		pushes := 0
		wg.Go(func() {
			for {
				h, body, err := peer.ReadFrame()
				if errors.Is(err, io.EOF) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				if h.Kind == wire.KindPush {
					var m wire.JobState
					if err := m.Decode(body); err != nil {
						t.Error(err)
					}
					// It may say the same twice: a growth queues the next push before
					// the one whose turn has come is built.
					if n := m.Tiers[tier.Disk].Chunks; n < state[h.ID] {
						t.Errorf("job %d: %d chunks after %d", h.ID, n, state[h.ID])
					} else {
						state[h.ID] = n
					}
					pushes++
					continue
				}
				n := binary.LittleEndian.Uint64(body)
				if n != next[h.ID] {
					t.Errorf("writer %d: message %d, want %d", h.ID, n, next[h.ID])
				}
				next[h.ID] = n + 1
				for _, b := range body[8:] {
					if b != byte(n) {
						t.Errorf("writer %d: message %d is torn", h.ID, n)
						break
					}
				}
				if n%64 == 0 {
					time.Sleep(time.Millisecond) // now and then everything piles up
				}
			}
		})
		c.waiting.Wait()
		conn.Close()
		wg.Wait()
		for w, n := range next {
			if n != messages {
				t.Errorf("writer %d: %d of %d messages came", w, n, messages)
			}
		}
		for id, n := range state {
			if n != growths {
				t.Errorf("job %d: the last push says %d of %d", id, n, growths)
			}
		}
		if o := &c.out; o.mu.busy || len(o.mu.queue) > 0 || len(o.mu.pushes) > 0 || o.mu.stall != nil || o.room() != nil {
			t.Errorf("at rest: %+v", &o.mu)
		}
		t.Logf("%d growths in %d pushes", jobs*growths, pushes)
	})
}

// While the client does not read, at most one push of a job waits.
func TestOnePushPerJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t)
		s := &Server{o: Options{Limits: Limits{}.orDefault()}}
		c := &session{server: s, conn: conn}
		c.out = output{conn: conn, limits: &s.o.Limits, spawn: c.waiting.Go}
		big := numbered(nil, 0, 0, 512<<10)
		c.out.send(big) // more than the socket takes
		jobs := [2]*job{{id: 1, session: c, prompt: one()}, {id: 2, session: c, prompt: one()}}
		for n := range 1000 {
			j := jobs[n%2]
			j.mu.Lock()
			j.mu.in[tier.Disk].Chunks++
			j.mu.Unlock()
			c.out.push(j)
		}
		for i := range 3 {
			h, body, err := peer.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				continue
			}
			var m wire.JobState
			if err := m.Decode(body); err != nil || m.Tiers[tier.Disk].Chunks != 500 {
				t.Errorf("push of job %d: %+v, %v", h.ID, m, err)
			}
		}
		c.waiting.Wait()
		if n := s.count.pushes.Load(); n != 2 {
			t.Errorf("%d pushes", n)
		}
	})
}

// one is the prompt of a job of one rank.
func one() prompt { return prompt{Family: store.Plain(make([]key.Chain, 1))} }

// A connection that breaks lets its waiters for room go on.
func TestOutputOfBrokenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, peer := pair(t)
		s := &Server{o: Options{Limits: Limits{QueueBytes: 1 << 10, StallTimeout: time.Minute}.orDefault()}}
		c := &session{server: s, conn: conn}
		c.out = output{conn: conn, limits: &s.o.Limits, spawn: c.waiting.Go}
		for range 100 {
			c.out.send(numbered(nil, 0, 0, 16<<10))
		}
		full := c.out.room()
		if full == nil {
			t.Fatal("there is room")
		}
		peer.Close()
		<-full
		c.waiting.Wait()
		c.out.send(numbered(nil, 0, 0, 16<<10)) // into the void
	})
}
