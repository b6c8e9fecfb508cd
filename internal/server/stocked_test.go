package server_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// single is a put of one chunk of a prompt, whose payload is bytes of one value.
type single struct {
	prompt *key.Chain
	first  int
	size   int
	value  byte
}

// start puts it. A kept prompt takes no slot of a stock.
func (s single) start(ctx context.Context, w *client.Writer, kept bool) (*client.Storing, error) {
	p := client.Chain(s.prompt)
	if kept {
		p = p.Kept()
	}
	return w.Put(ctx, p, client.ReserveOptions{First: s.first, Count: 1, Size: s.size}, func(i int, dst []byte) error {
		if i != 0 || len(dst) != s.size {
			return fmt.Errorf("chunk %d has room for %d bytes, want chunk 0 and %d", i, len(dst), s.size)
		}
		client.CopyTo(dst, bytes.Repeat([]byte{s.value}, s.size))
		return nil
	})
}

// outcome is what a put came to, wherever that showed.
func outcome(ctx context.Context, s *client.Storing, err error) string {
	results, failed := s.Wait(ctx)
	if err == nil {
		err = failed
	}
	var refused *client.Error
	switch {
	case errors.As(err, &refused):
		return refused.Code.String()
	case err != nil:
		return err.Error()
	case len(results) != 1:
		return fmt.Sprintf("%d results", len(results))
	}
	return results[0].Code.String()
}

// reserves counts reservations.
func reserves(n *atomic.Int64) func(wire.Op, time.Duration) {
	return func(op wire.Op, _ time.Duration) {
		if op == wire.OpReserve {
			n.Add(1)
		}
	}
}

// windowIsFree checks that no slot has any of a window of n bytes.
func windowIsFree(t *testing.T, c *client.Client, n int) {
	t.Helper()
	f, err := c.Reserve(t.Context(), client.Chain(chain(1<<40, n/size)), client.ReserveOptions{Size: size, AllOrNothing: true})
	if err != nil {
		t.Fatalf("the window: %v", err)
	}
	if err := f.Abort(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Puts by slots without keys come to what puts by reservations with keys do: of sizes
// in runs, of chunks in the middle of prompts, of those that are there, and of those
// that no prompt has; and they make fewer reservations.
func TestStockedLikeReserved(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const window = 2 * mib
				var asked [2]atomic.Int64
				var ws [2]*client.Writer
				var cs [2]*client.Client
				var rigs [2]*rig
				for i := range ws {
					rigs[i] = newRig(t, options{capacity: 64 * mib, Options: server.Options{Observe: reserves(&asked[i])}})
					cs[i] = rigs[i].dial(client.Options{StagingBytes: window})
					ws[i] = client.NewWriter(cs[i])
				}
				rnd := rand.New(rand.NewPCG(seed, 7))
				sizes := []int{1, 100, size, size, size, 3*size + 1, 300 * kib}
				s := single{size: size}
				var puts []single
				var under [2][]*client.Storing
				var errs [2][]error
				for range 400 {
					if rnd.IntN(12) == 0 {
						s.size = sizes[rnd.IntN(len(sizes))]
					}
					s.prompt = chain(seed<<20|uint64(rnd.IntN(150)), 1+rnd.IntN(3))
					s.first, s.value = rnd.IntN(s.prompt.Len()), byte(rnd.Uint32())
					if rnd.IntN(40) == 0 {
						s.first = s.prompt.Len() // there is none
					}
					puts = append(puts, s)
					ends := rnd.IntN(50)
					for i, w := range ws {
						st, err := s.start(t.Context(), w, i == 1)
						under[i], errs[i] = append(under[i], st), append(errs[i], err)
						switch ends {
						case 0:
							rigs[i].must(w.Flush(t.Context()))
						case 1:
							outcome(t.Context(), under[i][rnd.IntN(len(under[i]))], nil)
						}
					}
				}
				for i, s := range puts {
					got, want := outcome(t.Context(), under[0][i], errs[0][i]), outcome(t.Context(), under[1][i], errs[1][i])
					if got != want {
						t.Errorf("put %d, %d bytes of chunk %d of %d: %s, want %s", i, s.size, s.first, s.prompt.Len(), got, want)
					}
					if want == client.ResultStored.String() {
						sameBytes(t, cs[0], cs[1], s)
					}
				}
				for i, c := range cs {
					rigs[i].must(ws[i].Flush(t.Context()))
					windowIsFree(t, c, window)
				}
				if n, all := asked[0].Load(), asked[1].Load(); n > all*4/5 {
					t.Errorf("%d reservations of %d", n, all)
				}
			})
		})
	}
}

// sameBytes checks that two daemons have the same bytes of a chunk.
func sameBytes(t *testing.T, a, b *client.Client, s single) {
	t.Helper()
	var got [2][]byte
	for i, c := range []*client.Client{a, b} {
		p := client.Chain(s.prompt)
		p.SkipChunks += s.first
		for piece, err := range c.Pieces(t.Context(), p, client.PrefetchOptions{}) {
			if err != nil || len(piece.Chunks) == 0 {
				t.Fatalf("daemon %d has no chunk %d of %d: %v", i, s.first, s.prompt.Len(), err)
			}
			got[i] = bytes.Clone(piece.Chunks[0])
			break
		}
	}
	if !bytes.Equal(got[0], got[1]) || len(got[0]) != s.size || got[0][0] != s.value {
		t.Errorf("%d bytes, and %d other ones", len(got[0]), len(got[1]))
	}
}

// Where DRAM is full of what is leased, or the quota is, a put by a stock comes to the
// error of one by a reservation, and those behind it fail when they are put. When there is
// room again they are stored.
func TestStockedWithoutRoom(t *testing.T) {
	const large = 8 * size
	for name, tc := range map[string]struct {
		o      options
		leased int // chunks
	}{
		"DRAM":  {options{capacity: mib}, mib / size},
		"quota": {options{quotas: []stack.Quota{{Match: space.Model, Bytes: 20 * size}}}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var all [2][]string
				for kept := range 2 {
					r := newRig(t, tc.o)
					long := chain(1, tc.leased)
					r.onDisk(long, 0, long.Len()/2)
					r.onDisk(long, long.Len()/2, long.Len())
					c := r.dial(client.Options{})
					w := client.NewWriter(c)
					start := func(i int) (*client.Storing, error) {
						return single{prompt: chain(uint64(100+i), 1), size: large, value: 1}.start(t.Context(), w, kept == 1)
					}
					for i := range 2 {
						_, err := start(i)
						r.must(err)
					}
					r.must(w.Flush(t.Context()))
					r.must(r.stack.Flush(t.Context(), false))
					for i := range 2 { // begins a stock
						_, err := start(5 + i)
						r.must(err)
					}
					r.must(c.Ping(t.Context())) // behind the commits
					r.must(r.stack.Flush(t.Context(), false))
					job, _ := r.lease(r.dial(client.Options{}), long)
					var under []*client.Storing
					var errs []error
					for i := range 8 {
						st, err := start(10 + i)
						under, errs = append(under, st), append(errs, err)
					}
					if stocked := kept == 0; (errs[0] == nil) != stocked || errs[7] == nil {
						t.Errorf("stocked: %t: the first put said %v, the eighth %v", stocked, errs[0], errs[7])
					}
					for i, st := range under {
						all[kept] = append(all[kept], outcome(t.Context(), st, errs[i]))
					}
					r.must(job.Release(t.Context()))
					r.until("there is room", func() bool {
						st, err := start(20)
						return outcome(t.Context(), st, err) != all[kept][7]
					})
				}
				if want := all[1]; fmt.Sprint(all[0]) != fmt.Sprint(want) || want[0] == client.ResultStored.String() {
					t.Errorf("%v, want %v", all[0], want)
				}
			})
		})
	}
}

// A stock that the daemon revokes, as its Writer was silent for too long, loses what
// was not sent, says so, and keeps nothing of the window; the next put is stored.
func TestStockedRevoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window = 2 * mib
		r := newRig(t, options{Options: server.Options{Settings: server.Settings{LeaseMaxAge: leaseAge}}})
		c := r.dial(client.Options{StagingBytes: window})
		w := client.NewWriter(c)
		var under []*client.Storing
		for i := range 2 {
			st, err := single{prompt: chain(uint64(i), 1), size: size, value: 1}.start(t.Context(), w, false)
			r.must(err)
			under = append(under, st)
		}
		r.after(leaseAge, "the stock is revoked", func() bool { return r.server.Stats().Revoked > 0 })
		st, err := single{prompt: chain(2, 1), size: size, value: 1}.start(t.Context(), w, false)
		for i, want := range []string{client.ResultStored.String(), client.ErrRevoked.String()} {
			if got := outcome(t.Context(), under[i], nil); got != want {
				t.Errorf("put %d: %s, want %s", i, got, want)
			}
		}
		if got := outcome(t.Context(), st, err); got != client.ResultStored.String() {
			t.Errorf("the next put: %s", got)
		}
		windowIsFree(t, c, window)
	})
}

// Writers of one connection whose window is small store everything, and a prompt
// longer than DRAM that is put chunk by chunk makes room for itself: others stay.
func TestStockedLongPrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told atomic.Int64
		r := newRig(t, options{
			capacity: mib, limits: ledger.Limits{Lease: mib * 2 / 5, Load: mib / 5, Unwritten: mib / 5, Total: mib * 4 / 5},
			Options: server.Options{Stored: func(*key.Chain) { told.Add(1) }},
		})
		other := chain(1, 2)
		r.store(other, 0, other.Len())
		r.must(r.stack.Flush(t.Context(), false))
		c := r.dial(client.Options{StagingBytes: mib})
		w := client.NewWriter(c)
		long := chain(2, 4*mib/size)
		for i := range long.Len() {
			_, err := single{prompt: long, first: i, size: size, value: byte(i)}.start(t.Context(), w, false)
			r.must(err)
			if i%8 == 7 {
				r.must(w.Flush(t.Context()))
				r.must(r.stack.Flush(t.Context(), false))
			}
		}
		r.must(w.Flush(t.Context()))
		if told.Load() < int64(long.Len()) {
			t.Errorf("told of %d chunks of %d", told.Load(), long.Len())
		}
		for i := range other.Len() {
			if !r.hot.Has(other.Key(i)) {
				t.Errorf("chunk %d of another prompt has left DRAM", i)
			}
		}
		if m, err := c.Lookup(t.Context(), client.Chain(long), 0); err != nil || int(m.Total.Chunks) != long.Len() {
			t.Errorf("%+v, %v", m, err)
		}
	})
}

// A daemon that ends takes nobody with it: each put and each wait returns, with what
// was stored before or the end of the connection.
func TestStockedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		w := client.NewWriter(r.dial(client.Options{}))
		var under []*client.Storing
		var failed error
		for i := 0; failed == nil; i++ {
			if i == 50 {
				r.stop()
			}
			var st *client.Storing
			st, failed = single{prompt: chain(uint64(i), 1), size: size, value: 1}.start(t.Context(), w, false)
			under = append(under, st)
		}
		if !errors.Is(failed, client.ErrDisconnected) {
			t.Error(failed)
		}
		for i, st := range under[:len(under)-1] {
			switch results, err := st.Wait(t.Context()); {
			case err == nil && len(results) == 1 && results[0].Code == client.ResultStored:
			case i > 40 && errors.Is(err, client.ErrDisconnected):
			default:
				t.Errorf("put %d: %+v, %v", i, results, err)
			}
		}
	})
}
