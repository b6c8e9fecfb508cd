package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// faults is every way a request for a chunk goes wrong.
var faults = []struct {
	name  string
	fault s3test.Fault
	count string // what counts it, besides failed loads; "" = nothing
}{
	{"latency", s3test.Fault{Delay: time.Hour}, "retries"},
	{"500", s3test.Fault{Status: 500, Code: "InternalError"}, "retries"},
	{"503", s3test.Fault{Status: 503, Code: "SlowDown"}, "slow_downs"},
	{"403", s3test.Fault{Status: 403, Code: "AccessDenied"}, ""},
	{"reset", s3test.Fault{Reset: true}, "retries"},
	{"truncated", s3test.Fault{Truncate: true}, "wasted_bytes"},
	{"overlong", s3test.Fault{Overlong: true}, "wasted_bytes"},
	{"trickle", s3test.Fault{Trickle: time.Second}, "wasted_bytes"},
	{"stale 404", s3test.Fault{Status: 404, Code: "NoSuchKey"}, ""},
	{"flipped bit", s3test.Fault{Flip: true}, "wasted_bytes"},
}

// TestPrefixOfFaults: with any fault of one chunk, a prefetch answers by its
// deadline with exactly the chunks before it, and no block of that is left.
func TestPrefixOfFaults(t *testing.T) {
	const chunks, bad, size = 16, 6, 16 * kib // 6 is among those asked about
	const deadline = 2 * time.Second
	for _, tt := range faults {
		for _, from := range []struct {
			name   string
			method string // of the requests that fail; "" = all for this chunk
			known  bool   // by the index, so that it is not asked about
		}{
			{"known", http.MethodGet, true},
			{"found", http.MethodGet, false},
			{"not found", "", false},
		} {
			t.Run(tt.name+"/"+from.name, func(t *testing.T) {
				virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
					c := tiertest.Chain(1, chunks)
					writer := newHost(t, virtualOptions(s), tier.BreakerOptions{})
					writer.put(c, 0, chunks, size)
					o := virtualOptions(s)
					o.Timeout = 10 * time.Second // longer than anybody waits
					h := newHost(t, o, tier.BreakerOptions{})
					if from.known {
						h.far.known.add(c.Key(0))
						r, err := h.Lookups.ScanRemote(c, c.Skip, tier.All)
						if err != nil {
							t.Fatal(err)
						}
						r.Find(t.Context())
					}
					name := h.far.names.object(c.Key(bad))
					s.Set(func(r *http.Request) s3test.Fault {
						if strings.HasSuffix(r.URL.Path, name) && (from.method == "" || r.Method == from.method) {
							return tt.fault
						}
						return s3test.Fault{}
					})
					l := h.prefetch(c, deadline)
					if len(l.ready) != bad || l.took > deadline {
						t.Errorf("%d chunks were ready after %v, error %v; want %d by %v", len(l.ready), l.took, l.err, bad, deadline)
					}
					if n := len(l.ready); n > 0 && l.ready[n-1] > 10*latency {
						t.Errorf("the chunks before were ready only after %v", l.ready[n-1])
					}
					if late := tt.fault.Delay > 0 || tt.fault.Trickle > 0; late != errors.Is(l.err, prefetch.ErrDeadline) {
						t.Errorf("it ended with %v", l.err)
					}
					st := h.Operator.Stats()
					if n := st.Tiers[tier.Remote].Counters[tt.count]; tt.count != "" && from.method != "" && n == 0 {
						t.Errorf("not counted: %+v", st.Tiers[tier.Remote])
					}
					if from.method != "" && st.LoadFailed[tier.Remote] == 0 {
						t.Error("no load failed")
					}
					s.Set(nil)
					time.Sleep(absenceAge)
					switch n := h.all(c); {
					case tt.fault.Flip: // wrong twice: deleted, so that it can be stored anew
						if n != bad || len(s.Objects()) != chunks-1 {
							t.Errorf("%d chunks are there, %d objects are left", n, len(s.Objects()))
						}
					case n != chunks:
						t.Errorf("once the store works again there are %d chunks; want %d", n, chunks)
					}
				})
			})
		}
	}
}

// TestBreakerThroughStore: a store that fails is left alone, asked by one call
// at a time whether it works again, and used again once it does.
func TestBreakerThroughStore(t *testing.T) {
	const chunks = 16
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		c := tiertest.Chain(1, chunks)
		put(t, connect(t, virtualOptions(s)), m, c, 0, chunks, kib)
		h := newHost(t, virtualOptions(s), tier.BreakerOptions{Failures: 3})
		s.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 500, Code: "InternalError"} })
		for range 3 {
			if l := h.prefetch(c, time.Second); len(l.ready) != 0 || l.took > time.Second {
				t.Fatalf("%d chunks were ready after %v of a store that fails", len(l.ready), l.took)
			}
		}
		far := func() tier.Stats { return h.Operator.Stats().Tiers[tier.Remote] }
		if st := far(); !st.Off || st.Counters["switched_off"] != 1 {
			t.Fatalf("after three failures: %+v", st)
		}
		before := s.Count("")
		for range 10 {
			if l := h.prefetch(c, time.Second); len(l.ready) != 0 || l.took != 0 {
				t.Errorf("%d chunks were ready after %v of a tier that is switched off", len(l.ready), l.took)
			}
		}
		if n := s.Count("") - before; n != 0 {
			t.Errorf("a tier that is switched off got %d requests", n)
		}
		time.Sleep(time.Second)
		if l := h.prefetch(c, time.Second); len(l.ready) != 0 || !far().Off {
			t.Error("a probe that failed switched it on")
		}
		s.Set(nil)
		time.Sleep(2 * time.Second)
		for tries := 0; far().Off && tries < 100; tries++ {
			h.prefetch(tiertest.Chain(1, 1), time.Second) // of one chunk, the probe: others that are refused would cancel it
		}
		if l := h.all(c); l != chunks {
			t.Errorf("once the store works again %d chunks were ready", l)
		}
		if st := far(); st.Off || st.Counters["switched_off"] != 1 {
			t.Errorf("once the store works again: %+v", st)
		}
	})
}

// TestWritesOfFaults: chunks that cannot be written are counted as dropped, a
// flush ends all the same, they stay in DRAM, and the next flush writes them.
func TestWritesOfFaults(t *testing.T) {
	const chunks, size = 4, 64 * kib
	for _, tt := range faults {
		if tt.fault.Delay == 0 && tt.fault.Status == 0 && !tt.fault.Reset || tt.fault.Status == 404 {
			continue // of answers with a body
		}
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				h := newHost(t, virtualOptions(s), tier.BreakerOptions{})
				s.Set(only(http.MethodPut, tt.fault))
				c := tiertest.Chain(1, chunks)
				start := time.Now()
				h.put(c, 0, chunks, size)
				if took := time.Since(start); took > maxTries*(h.far.o.Timeout+slowPauseMax) {
					t.Errorf("the flush took %v", took)
				}
				w := h.Operator.Stats().Written[tier.Remote]
				if w.Written.Chunks != 0 || w.Dropped[explain.WriteFailed].Plus(w.Dropped[explain.WhileOff]).Chunks != chunks || w.Waiting != 0 {
					t.Errorf("written behind: %+v; want %d chunks dropped", w, chunks)
				}
				if m, err := h.Lookups.Match(t.Context(), c, tier.All); m.In[tier.CPU].Chunks != chunks || err != nil {
					t.Errorf("found %+v, error %v", m, err)
				}
				s.Set(nil)
				if w.Missed != chunks {
					t.Errorf("%d chunks will be offered again; want %d", w.Missed, chunks)
				}
				if err := h.Writers.Flush(t.Context(), false); err != nil || len(s.Objects()) != chunks {
					t.Errorf("once the store works again: %d objects, error %v; want %d", len(s.Objects()), err, chunks)
				}
			})
		})
	}
}

// TestOthersCancelled: net/http may answer a request on a connection whose last
// request was cancelled at its very end as if it had been cancelled itself.
func TestOthersCancelled(t *testing.T) {
	err := (&Tier{}).judge(t.Context(), "head", fmt.Errorf("request: %w", context.Canceled))
	if errors.Is(err, context.Canceled) || !retriable(err) {
		t.Errorf("a request that nobody cancelled: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&Tier{}).judge(ctx, "head", fmt.Errorf("request: %w", context.Canceled)); !errors.Is(err, context.Canceled) || retriable(err) {
		t.Errorf("a request that was cancelled: %v", err)
	}
}
