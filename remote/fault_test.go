package remote

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// throughProxy is a server behind a proxy, and a tier on it.
func throughProxy(t *testing.T) (*s3test.Proxy, tiertest.Allocator, *Tier) {
	t.Helper()
	p := s3test.RunProxy(t, s3test.Run(t))
	return p, memory(t, 4*mib), connect(t, testOptions(p.Endpoint))
}

// only applies f to requests of a method.
func only(method string, f s3test.Fault) s3test.Rule {
	return func(r *http.Request) s3test.Fault {
		if r.Method == method {
			return f
		}
		return s3test.Fault{}
	}
}

// TestFaults lets every get fail in one way, over a network. Each must end with an error,
// leave no block behind, and work again afterwards. (When it ends TestPrefixOfFaults
// says, in virtual time.)
func TestFaults(t *testing.T) {
	p, m, r := throughProxy(t)
	c := tiertest.Chain(1, 2)
	put(t, r, m, c, 0, 2, 64*kib)
	for _, tt := range []struct {
		name  string
		fault s3test.Fault
		want  error // nil = any
	}{
		{"500", s3test.Fault{Status: 500, Code: "InternalError"}, nil},
		{"403", s3test.Fault{Status: 403, Code: "AccessDenied"}, nil},
		{"reset", s3test.Fault{Reset: true}, errBroken},
		{"truncated", s3test.Fault{Truncate: true}, errBroken},
		{"overlong", s3test.Fault{Overlong: true}, errLength},
	} {
		p.Set(only(http.MethodGet, tt.fault))
		r.retries = newAllowance(retryShare, retrySaved)
		failsOnce(t, p.Faults, r, m, c.Key(0), tt.name, tt.want)
	}
	if st := r.Stats().Counters; st["retries"] == 0 || st["wasted_bytes"] == 0 {
		t.Errorf("nothing counted: %v", st)
	}
}

// TestLate is TestFaults for answers that are late.
func TestLate(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 2)
		put(t, r, m, c, 0, 2, 64*kib)
		for name, fault := range map[string]s3test.Fault{"latency": {Delay: time.Hour}, "trickle": {Trickle: time.Second}} {
			s.Set(only(http.MethodGet, fault))
			r.retries, r.o.Timeout = newAllowance(0, 0), 2*time.Second
			failsOnce(t, s.Faults, r, m, c.Key(0), name, errTimeout)
		}
	})
}

// failsOnce wants a get to fail, and to succeed without the fault.
func failsOnce(t *testing.T, f *s3test.Faults, r *Tier, m tiertest.Allocator, k key.Key, name string, want error) {
	t.Helper()
	err := get(t, r, m, k)
	if err == nil || want != nil && !errors.Is(err, want) || errors.Is(err, tier.ErrNotFound) {
		t.Errorf("%s: %v; want %v", name, err, want)
	}
	f.Set(nil)
	if err := get(t, r, m, k); err != nil {
		t.Errorf("after %s: %v", name, err)
	}
}

func TestSlowDown(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 1000)
		var asked atomic.Int32
		p.Set(func(*http.Request) s3test.Fault {
			if asked.Add(1) == 1 {
				return s3test.Fault{Status: 503, Code: "SlowDown"}
			}
			return s3test.Fault{}
		})
		start := time.Now()
		if err := get(t, r, m, c.Key(0)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took < slowPause/2 {
			t.Errorf("sent again after %v", took)
		}
		if n := r.Stats().Counters["slow_downs"]; n != 1 {
			t.Errorf("%d slow downs counted; want 1", n)
		}
	})
}

// TestSlowDowns: a burst of requests that are all told to slow down makes one pause.
func TestSlowDowns(t *testing.T) {
	const burst = 8
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		c := tiertest.Chain(1, burst)
		put(t, r, m, c, 0, burst, 1000)
		var asked atomic.Int32
		p.Set(func(*http.Request) s3test.Fault {
			if asked.Add(1) <= burst {
				return s3test.Fault{Status: 503, Code: "SlowDown"}
			}
			return s3test.Fault{}
		})
		start := time.Now()
		var gets errgroup.Group
		for i := range burst {
			gets.Go(func() error { return get(t, r, m, c.Key(i)) })
		}
		if err := gets.Wait(); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != latency+slowPause+latency {
			t.Errorf("it took %v; want one pause, of %v", took, slowPause)
		}
		if n := r.Stats().Counters["slow_downs"]; n != burst {
			t.Errorf("%d slow downs counted; want %d", n, burst)
		}
	})
}

// TestRetryBudget keeps a store in trouble from seeing three times as much.
func TestRetryBudget(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		p.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 500, Code: "InternalError"} })
		before := p.Count(http.MethodGet)
		const calls = 50
		for i := range calls {
			if err := get(t, r, m, tiertest.Chain(1, calls).Key(i)); err == nil {
				t.Fatal("a get succeeded")
			}
		}
		extra := p.Count(http.MethodGet) - before - calls
		if most := retrySaved + 1 + int(2*retryShare*calls); extra > most {
			t.Errorf("%d gets made %d extra requests; at most %d", calls, extra, most)
		}
	})
}

func TestStaleIsHealed(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 1000)
		p.Set(only(http.MethodGet, s3test.Fault{Status: 404, Code: "NoSuchKey"}))
		if err := get(t, r, m, c.Key(0)); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("got %v; want %v", err, tier.ErrNotFound)
		}
		if !r.Absent(c.Key(0)) {
			t.Error("what the store does not have counts as there")
		}
		p.Set(nil)
		put(t, r, m, c, 0, 1, 1000)
		if r.Absent(c.Key(0)) {
			t.Error("what was just put counts as absent")
		}
	})
}

// TestOtherNotFound: a 404 that does not name the missing thing says nothing
// about the object: a proxy that knows no such address would make every get a
// miss.
func TestOtherNotFound(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 1000)
		for name, f := range map[string]s3test.Fault{
			"no code":     {Status: 404},
			"another one": {Status: 404, Code: "InvalidAccessKeyId"},
		} {
			p.Set(only(http.MethodGet, f))
			if err := get(t, r, m, c.Key(0)); err == nil || errors.Is(err, tier.ErrNotFound) {
				t.Errorf("%s: got %v; want an error of the store's", name, err)
			}
			if r.Absent(c.Key(0)) {
				t.Errorf("%s: the object counts as absent", name)
			}
		}
	})
}

// TestCorrupt: bytes that are wrong on the wire once are read again; those that
// are wrong in the store are deleted there, so that the chunk can be stored anew.
func TestCorrupt(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(p))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 5000)
		var asked atomic.Int32
		p.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Flip: asked.Add(1) == 1} })
		if err := get(t, r, m, c.Key(0)); err != nil {
			t.Errorf("wrong once: %v", err)
		}
		p.Set(only(http.MethodGet, s3test.Fault{Flip: true}))
		if err := get(t, r, m, c.Key(0)); !errors.Is(err, tier.ErrCorrupt) {
			t.Errorf("wrong always: got %v; want %v", err, tier.ErrCorrupt)
		}
		p.Set(nil)
		fresh := connect(t, virtualOptions(p))
		if err := get(t, fresh, m, c.Key(0)); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("afterwards: got %v; want %v", err, tier.ErrNotFound)
		}
		put(t, fresh, m, c, 0, 1, 5000)
		if err := get(t, fresh, m, c.Key(0)); err != nil {
			t.Errorf("stored anew: %v", err)
		}
	})
}

// TestCutOff: an object that lacks bytes is deleted too, without being read.
func TestCutOff(t *testing.T) {
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		r := connect(t, virtualOptions(s))
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 5000)
		name := s.Objects()[0]
		header, body := s.Object(name)
		s.Store(name, header, body[:4999])
		if err := get(t, r, m, c.Key(0)); !errors.Is(err, tier.ErrCorrupt) || len(s.Objects()) != 0 {
			t.Errorf("got %v; want %v; %d objects are left", err, tier.ErrCorrupt, len(s.Objects()))
		}
		if n := r.Stats().Counters["received_bytes"]; n != 0 {
			t.Errorf("%d bytes were read", n)
		}
		put(t, r, m, c, 0, 1, 5000)
		if err := get(t, r, m, c.Key(0)); err != nil {
			t.Errorf("stored anew: %v", err)
		}
	})
}

func TestBreaker(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		r := tier.WithBreaker(connect(t, virtualOptions(p)), tier.BreakerOptions{Failures: 3, Pause: 20 * time.Millisecond})
		c := tiertest.Chain(1, 1)
		put(t, r, m, c, 0, 1, 1000)
		p.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 500, Code: "InternalError"} })
		for i := 0; !r.Stats().Off; i++ {
			if err := get(t, r, m, c.Key(0)); err == nil || i > 3 {
				t.Fatalf("failure %d: %v, and the breaker is closed", i, err)
			}
		}
		p.Set(nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for r.Stats().Off && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
			_ = get(t, r, m, c.Key(0))
		}
		if err := get(t, r, m, c.Key(0)); err != nil || r.Stats().Counters["switched_off"] != 1 {
			t.Errorf("once the store works again: %v, %v", err, r.Stats().Counters)
		}
	})
}

// TestBothStore: of two machines that store the same chunk one wins, and what
// the other sent is counted.
func TestBothStore(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		a, b := connect(t, virtualOptions(p)), connect(t, virtualOptions(p))
		c := tiertest.Chain(1, 8)
		put(t, a, m, c, 0, 8, 64*kib)
		put(t, b, m, c, 0, 8, 64*kib)
		st := b.Stats()
		if st.Puts != 0 || st.Counters["puts_present"] != 8 || st.Counters["sent_bytes"] != st.Counters["wasted_bytes"] {
			t.Errorf("the second one counts %+v", st)
		}
		// Without conditional puts the second one asks first.
		d := connect(t, virtualOptions(p))
		d.unconditional.Store(true)
		put(t, d, m, c, 0, 8, 64*kib)
		if st := d.Stats(); st.Puts != 0 || st.Counters["sent_bytes"] != 0 || st.Counters["head_requests"] != 8 {
			t.Errorf("the one that asks counts %+v", st)
		}
	})
}

func TestTTL(t *testing.T) {
	virtual(t, func(t *testing.T, p *s3test.Memory, m tiertest.Allocator) {
		o := virtualOptions(p)
		c := tiertest.Chain(1, 1)
		put(t, connect(t, o), m, c, 0, 1, 1000)
		o.TTL = time.Nanosecond
		r := connect(t, o)
		if err := get(t, r, m, c.Key(0)); !errors.Is(err, tier.ErrNotFound) {
			t.Errorf("get: %v; want %v", err, tier.ErrNotFound)
		}
		put(t, r, m, c, 0, 1, 1000) // renewed, although it is there
		if n := r.Stats().Puts; n != 1 {
			t.Errorf("%d puts of what is too old; want 1", n)
		}
	})
}

// TestConnect: an error names the problem, without credentials, and no call
// works until the problem is solved.
func TestConnect(t *testing.T) {
	s := s3test.Run(t)
	echo := s3test.RunProxy(t, s)
	echo.Set(func(*http.Request) s3test.Fault { return s3test.Fault{Status: 403, Code: "InvalidAccessKeyId"} })
	var log bytes.Buffer
	for _, tt := range []struct {
		name   string
		change func(*Options)
		env    [2]string
		says   string
	}{
		{"no such bucket", func(o *Options) { o.Bucket = "nothing" }, [2]string{}, "NoSuchBucket"},
		{"wrong secret", func(*Options) {}, [2]string{"AWS_SECRET_ACCESS_KEY", "wrong-secret"}, "SignatureDoesNotMatch"},
		{"unknown key", func(*Options) {}, [2]string{"AWS_ACCESS_KEY_ID", "wrong-access"}, "does not know these credentials"},
		{"unknown key, repeated", func(o *Options) { o.Endpoint = echo.Endpoint }, [2]string{}, "does not know these credentials"},
		{"no credentials", func(*Options) {}, [2]string{"AWS_ACCESS_KEY_ID", ""}, "credentials"},
		{"unknown profile", func(o *Options) { o.Profile = "nobody" }, [2]string{}, "profile"},
		{"nobody there", func(o *Options) { o.Endpoint = "http://127.0.0.1:1" }, [2]string{}, "refused"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.env[0] != "" {
				t.Setenv(tt.env[0], tt.env[1])
			}
			o := testOptions(s.Endpoint)
			o.Log = zerolog.New(&log)
			tt.change(&o)
			r, err := New(o)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			err = r.Connect(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Fatalf("got %v; want %q", err, tt.says)
			}
			if _, checked := r.Check(t.Context()); checked == nil {
				t.Error("the check finds nothing")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_ = r.Run(ctx)
			for _, secret := range []string{s3test.AccessKey, s3test.SecretKey, "wrong-secret", "wrong-access"} {
				if strings.Contains(err.Error()+log.String(), secret) {
					t.Errorf("credentials are told: %v", err)
				}
			}
			if err := r.Contains(t.Context(), tiertest.Keys(tiertest.Chain(1, 1), 0, 1), make([]bool, 1)); !errors.Is(err, tier.ErrOff) {
				t.Errorf("contains: %v; want %v", err, tier.ErrOff)
			}
		})
	}
	if notes, err := connect(t, testOptions(s.Endpoint)).Check(t.Context()); err != nil || len(notes) != 1 {
		t.Errorf("check of a good store: %v, %v", notes, err)
	}
}
