package remote

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// through is a transport that changes what a store says.
type through struct {
	http.RoundTripper
	change func(q *http.Request, a *http.Response)
}

func (p through) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := p.RoundTripper.RoundTrip(q)
	if err == nil {
		p.change(q, a)
	}
	return a, err
}

// dropsMetadata is a store, or a proxy, that keeps bodies alone.
func dropsMetadata(_ *http.Request, a *http.Response) {
	for name := range a.Header {
		if strings.HasPrefix(name, "X-Amz-Meta-") {
			a.Header.Del(name)
		}
	}
}

// answersPage is a proxy that answers everything with a page.
func answersPage(_ *http.Request, a *http.Response) {
	a.StatusCode, a.Header = http.StatusOK, http.Header{"Content-Type": {"text/html"}}
	a.Body, a.ContentLength = body2{strings.NewReader("<html>log in here</html>"), a.Body}, -1
}

type body2 struct {
	io.Reader
	io.Closer
}

// A store that loses parts of objects, or that is none, is not connected to, and check
// says so.
func TestUselessStores(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*http.Request, *http.Response)
		want   error
	}{
		"no metadata": {dropsMetadata, errMetadata},
		"a page":      {answersPage, errAnyName},
		"a page for puts": {func(q *http.Request, a *http.Response) {
			if q.Method == http.MethodPut {
				answersPage(q, a)
			}
		}, errNoTag},
		"other bytes": {func(q *http.Request, a *http.Response) {
			if q.Method == http.MethodGet && a.StatusCode == http.StatusOK {
				a.Body = body2{strings.NewReader("0123456789abcdef"), a.Body}
			}
		}, errOther},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, _ tiertest.Allocator) {
				o := virtualOptions(s)
				o.transport = through{s, tt.change}
				r, err := New(o)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				for what, err := range map[string]error{"connect": r.Connect(t.Context()), "check": second(r.Check(t.Context()))} {
					if !errors.Is(err, tt.want) {
						t.Errorf("%s: %v; want %v", what, err, tt.want)
					}
				}
				if err := r.Trouble(); !r.Off() || !errors.Is(err, tt.want) {
					t.Errorf("it is on, or its trouble is %v", err)
				}
				q, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://store/"+o.Bucket+"/"+r.canaryName(), nil)
				if err != nil {
					t.Fatal(err)
				}
				a, err := s.RoundTrip(q)
				if err != nil {
					t.Fatal(err)
				}
				if a.Body.Close(); a.StatusCode != http.StatusNotFound {
					t.Errorf("%s stays in the store: %s", r.canaryName(), a.Status)
				}
			})
		})
	}
}

// An answer without a chunk's record is no chunk: a proxy's page, or an object of
// another program.
func TestForeignIsAbsent(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		var page atomic.Bool
		o := virtualOptions(s)
		o.transport = through{s, func(q *http.Request, a *http.Response) {
			if page.Load() {
				answersPage(q, a)
			}
		}}
		r := connect(t, o)
		c := tiertest.Chain(1, 20)
		put(t, r, m, c, 0, 10, kib)
		page.Store(true)
		if n, err := r.Find(t.Context(), tiertest.Keys(c, 10, 20), nil); n != 0 || err != nil {
			t.Errorf("%d chunks are found in pages, error %v", n, err)
		}
		page.Store(false)
		if n, err := r.Find(t.Context(), tiertest.Keys(c, 0, 10), nil); n != 10 || err != nil {
			t.Errorf("%d of 10 chunks are found, error %v", n, err)
		}
	})
}

func second(_ []string, err error) error { return err }

// A proxy that comes to drop metadata later is found within canaryEvery of use, and what
// gets well is used again.
func TestStoreTurnsUseless(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		var drops atomic.Bool
		o := virtualOptions(s)
		o.transport = through{s, func(q *http.Request, a *http.Response) {
			if drops.Load() {
				dropsMetadata(q, a)
			}
		}}
		r := run(t, o, s)
		c := tiertest.Chain(1, 3)
		put(t, r, m, c, 0, 1, kib)
		before := s.Count("")
		pass(10 * canaryEvery)
		if n := s.Count("") - before; n > 2 {
			t.Errorf("a store that is not used gets %d requests", n)
		}
		drops.Store(true)
		put(t, r, m, c, 1, 2, kib)
		pass(canaryEvery + connectPauseMax)
		if err := r.Trouble(); !r.Off() || !errors.Is(err, errMetadata) {
			t.Fatalf("it is on, or its trouble is %v", err)
		}
		drops.Store(false)
		pass(2 * connectPauseMax)
		if r.Off() || r.Trouble() != nil {
			t.Errorf("it stays off: %v", r.Trouble())
		}
	})
}

// refusesWrites is a bucket that may be read only.
func refusesWrites(q *http.Request) s3test.Fault {
	if q.Method == http.MethodGet || q.Method == http.MethodHead {
		return s3test.Fault{}
	}
	return s3test.Fault{Status: http.StatusForbidden, Code: "AccessDenied"}
}

// A bucket that refuses writes is read, from the start on or later, and no breaker opens.
func TestReadOnly(t *testing.T) {
	for name, late := range map[string]bool{"from the start": false, "later": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				c := tiertest.Chain(1, 20)
				put(t, connect(t, virtualOptions(s)), m, c, 0, 1, kib)
				if !late {
					s.Set(refusesWrites)
				}
				bare := run(t, virtualOptions(s), s)
				s.Set(refusesWrites)
				r := tier.WithBreaker(bare, tier.BreakerOptions{})
				before := s.Count(http.MethodPut)
				for i := 1; i < 20; i++ {
					e := tiertest.NewEntry(t, m.Arena, c, i, kib)
					if err := r.Put(t.Context(), e); !errors.Is(err, tier.ErrOff) {
						t.Errorf("a put: %v", err)
					}
					e.Block.Release()
				}
				if n := s.Count(http.MethodPut) - before; n > 1 {
					t.Errorf("%d puts were sent in vain", n)
				}
				if err := r.Delete(t.Context(), []key.Key{c.Key(0)}); !errors.Is(err, tier.ErrOff) {
					t.Errorf("a deletion: %v", err)
				}
				if err := get(t, r, m, c.Key(0)); err != nil {
					t.Errorf("what is there cannot be read: %v", err)
				}
				if err := tier.RolesOf(r).Health.Trouble(); r.Stats().Off || !errors.Is(err, errReadOnly) || strings.Contains(err.Error(), "off") {
					t.Errorf("its trouble is %v", err)
				}
				if notes, err := bare.Check(t.Context()); err != nil || len(notes) != 1 || !strings.Contains(notes[0], "read only") {
					t.Errorf("check says %q: %v", notes, err)
				}
				s.Set(nil)
				pass(canaryEvery + time.Second)
				put(t, r, m, c, 1, 2, kib)
			})
		})
	}
}

// A store that refuses the condition of a put, in any words, is asked first.
func TestRefusedConditions(t *testing.T) {
	for _, f := range []s3test.Fault{
		{Status: http.StatusNotImplemented, Code: "NotImplemented"},
		{Status: http.StatusBadRequest, Code: "InvalidArgument"},
		{Status: http.StatusConflict, Code: "OperationAborted"},
	} {
		virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
			r := connect(t, virtualOptions(s))
			s.Set(func(q *http.Request) s3test.Fault {
				if q.Header.Get("If-None-Match") != "" {
					return f
				}
				return s3test.Fault{}
			})
			c := tiertest.Chain(1, 5)
			put(t, r, m, c, 0, mostDoubts, kib)
			if !r.unconditional.Load() {
				t.Errorf("%d: it goes on with conditions", f.Status)
			}
			before := s.Count(http.MethodPut)
			put(t, r, m, c, mostDoubts, mostDoubts+1, kib)
			if n := s.Count(http.MethodPut) - before; n != 1 {
				t.Errorf("%d: the next put takes %d puts", f.Status, n)
			}
			for i := range mostDoubts + 1 {
				if err := get(t, r, m, c.Key(i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Two machines that store one chunk at a time meet conflicts, which say nothing of what the
// store knows; each put in between is proof that it knows conditions.
func TestConflictsKeepConditions(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 20)
		for i := range 20 {
			var n atomic.Int32
			s.Set(func(q *http.Request) s3test.Fault {
				if i%3 < 2 && q.Header.Get("If-None-Match") != "" && n.Add(1) <= 3 {
					return s3test.Fault{Status: http.StatusConflict, Code: "ConditionalRequestConflict"}
				}
				return s3test.Fault{}
			})
			put(t, r, m, c, i, i+1, kib)
		}
		if r.unconditional.Load() {
			t.Error("conditions are dropped for good")
		}
	})
}

// A bucket that was read only is tried again, also where nothing but puts comes.
func TestReadOnlyEndsWithPutsAlone(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		s.Set(refusesWrites)
		r := run(t, virtualOptions(s), s)
		pass(time.Second)
		c := tiertest.Chain(1, 2)
		e := tiertest.NewEntry(t, m.Arena, c, 0, kib)
		defer e.Block.Release()
		if err := r.Put(t.Context(), e); !errors.Is(err, errReadOnly) {
			t.Fatalf("a put while it is read only: %v", err)
		}
		s.Set(nil)
		pass(canaryEvery + time.Second)
		put(t, r, m, c, 1, 2, kib)
	})
}

// A bucket with a default retention takes no put without a checksum of S3's.
func TestChecksumWhereAsked(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		s.Set(func(q *http.Request) s3test.Fault {
			if q.Method == http.MethodPut && q.Header.Get("X-Amz-Checksum-Crc32c") == "" {
				return s3test.Fault{Status: http.StatusBadRequest, Code: "InvalidRequest"}
			}
			return s3test.Fault{}
		})
		r := connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 64*kib)
		if err := get(t, r, m, c.Key(0)); err != nil {
			t.Error(err)
		}
		if notes, err := r.Check(t.Context()); err != nil || len(notes) != 1 {
			t.Errorf("check says %q: %v", notes, err)
		}
		s.Set(nil)
		r = connect(t, virtualOptions(s))
		if put(t, r, m, tiertest.Chain(2, 1), 0, 1, kib); r.summed.Load() {
			t.Error("a store that asks for none gets checksums")
		}
	})
}

// A region that is wrong is named, with the key.
func TestWrongRegion(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, _ tiertest.Allocator) {
		s.Set(func(*http.Request) s3test.Fault {
			return s3test.Fault{Status: http.StatusBadRequest, Code: "AuthorizationHeaderMalformed"}
		})
		r, err := New(virtualOptions(s))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "remote.s3.region") {
			t.Error(err)
		}
	})
}
