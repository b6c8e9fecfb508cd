package remote

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestNameTaken: a put whose object is there already succeeds only if it is
// the same chunk; other bytes of the same length are, and are counted.
func TestNameTaken(t *testing.T) {
	const size = 1000
	for _, tt := range []struct {
		name    string
		change  func(h http.Header, body []byte) []byte
		counter string
		says    string // "" = success
	}{
		{"same", func(_ http.Header, b []byte) []byte { return b }, "puts_present", ""},
		{"other bytes", func(h http.Header, b []byte) []byte {
			h.Set("X-Amz-Meta-"+metaSum, fmt.Sprintf("%016x", 1))
			return b
		}, "puts_other_bytes", ""},
		{"another length", func(h http.Header, b []byte) []byte {
			h.Set("X-Amz-Meta-"+metaSize, "999")
			return b[:999]
		}, "puts_occupied", "999 bytes"},
		{"cut off", func(_ http.Header, b []byte) []byte { return b[:10] }, "puts_occupied", "10 bytes"},
		{"a copy of another chunk", func(h http.Header, b []byte) []byte {
			h.Set("X-Amz-Meta-"+metaHash, strings.Repeat("ab", 16))
			return b
		}, "puts_occupied", errForeign.Error()},
		{"no record", func(h http.Header, b []byte) []byte { clear(h); return b }, "puts_occupied", errForeign.Error()},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				r := tier.WithBreaker(connect(t, virtualOptions(s)), tier.BreakerOptions{Failures: 1})
				c := tiertest.Chain(1, 1)
				put(t, connect(t, virtualOptions(s)), m, c, 0, 1, size)
				name := s.Objects()[0]
				header, body := s.Object(name)
				s.Store(name, header, tt.change(header, body))
				_, before := s.Object(name)
				heads := s.Count(http.MethodHead)

				e := tiertest.NewEntry(t, m.Arena, c, 0, size)
				defer e.Block.Release()
				err := r.Put(t.Context(), e)
				switch {
				case tt.says == "" && err != nil:
					t.Error(err)
				case tt.says != "" && (!errors.Is(err, tier.ErrCorrupt) || !strings.Contains(err.Error(), tt.says)):
					t.Errorf("put: %v; want %q", err, tt.says)
				}
				st := r.Stats()
				if st.Counters[tt.counter] != 1 || st.Puts != 0 || st.Counters["wasted_bytes"] != size || st.Off {
					t.Errorf("counted %+v; want one of %s, and the bytes as wasted", st, tt.counter)
				}
				if n := s.Count(http.MethodHead) - heads; n != 1 {
					t.Errorf("%d HEADs; want 1", n)
				}
				if _, after := s.Object(name); &after[0] != &before[0] {
					t.Error("the object was replaced")
				}
			})
		})
	}
}

// TestKnownIsNotSent: a chunk that this tier has stored is asked for before it is
// sent again, and sent if another machine has deleted it.
func TestKnownIsNotSent(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		r, other := connect(t, virtualOptions(s)), connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 1)
		before := s.Count(http.MethodPut)
		put(t, r, m, c, 0, 1, kib)
		put(t, r, m, c, 0, 1, kib)
		if puts, heads := s.Count(http.MethodPut)-before, s.Count(http.MethodHead); puts != 1 || heads != 1 {
			t.Errorf("%d PUTs and %d HEADs; want one of each", puts, heads)
		}
		if err := other.Delete(t.Context(), tiertest.Keys(c, 0, 1)); err != nil {
			t.Fatal(err)
		}
		put(t, r, m, c, 0, 1, kib)
		if n := len(s.Objects()); n != 1 {
			t.Errorf("%d objects after the chunk was stored again; want 1", n)
		}
		if st := r.Stats().Counters; st["wasted_bytes"] != 0 {
			t.Errorf("%d bytes were sent for nothing", st["wasted_bytes"])
		}
	})
}

// TestUnconditional: a store that knows no conditional puts is asked first, so
// that what another machine has stored is neither sent nor replaced.
func TestUnconditional(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		s.Set(func(r *http.Request) s3test.Fault {
			if r.Header.Get("If-None-Match") != "" {
				return s3test.Fault{Status: http.StatusNotImplemented, Code: "NotImplemented"}
			}
			return s3test.Fault{}
		})
		a, b := connect(t, virtualOptions(s)), connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 2)
		before := s.Count(http.MethodPut)
		put(t, a, m, c, 0, 2, kib)
		if puts, heads := s.Count(http.MethodPut)-before, s.Count(http.MethodHead); puts != 3 || heads != 2 {
			t.Errorf("two chunks took %d PUTs and %d HEADs; want one refused, and one of each for a chunk", puts, heads)
		}
		put(t, b, m, c, 0, 2, kib)
		st := b.Stats()
		if st.Puts != 0 || st.Counters["puts_present"] != 2 || s.Count(http.MethodPut)-before != 4 || s.Count(http.MethodHead) != 4 {
			t.Errorf("what is there was stored again: %+v, %d PUTs, %d HEADs", st, s.Count(http.MethodPut)-before, s.Count(http.MethodHead))
		}
		for i := range 2 {
			if err := get(t, b, m, c.Key(i)); err != nil {
				t.Errorf("chunk %d: %v", i, err)
			}
		}
		notes, err := b.Check(t.Context())
		if err != nil || len(notes) != 2 || !strings.Contains(notes[0], "no conditional puts") {
			t.Errorf("check: %q, error %v", notes, err)
		}
		if n := len(s.Objects()); n != 2 {
			t.Errorf("the check left %d objects; want the 2 chunks", n)
		}
	})
}
