package remote

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A store that answers with bodies that do not end takes no memory.
func TestAnswersAreBounded(t *testing.T) {
	const flood = 64 * mib
	for name, tt := range map[string]struct {
		fault s3test.Fault
		do    func(t *testing.T, r *Tier, m tiertest.Allocator, c *key.Chain) error
		most  int // bytes that are read
	}{
		"error of a get": {s3test.Fault{Status: 404, Code: "NoSuchKey", Flood: flood}, func(t *testing.T, r *Tier, m tiertest.Allocator, c *key.Chain) error {
			return get(t, r, m, c.Key(0))
		}, maxErrorBytes},
		"error of a put": {s3test.Fault{Status: 403, Code: "AccessDenied", Flood: flood}, func(t *testing.T, r *Tier, m tiertest.Allocator, c *key.Chain) error {
			e := tiertest.NewEntry(t, m.Arena, c, 1, kib)
			defer e.Block.Release()
			return r.Put(t.Context(), e)
		}, maxErrorBytes},
		"list": {s3test.Fault{Flood: flood}, func(t *testing.T, r *Tier, _ tiertest.Allocator, _ *key.Chain) error {
			_, err := r.loadNames(t.Context())
			return err
		}, maxAnswerBytes},
		"deletion": {s3test.Fault{Flood: flood}, func(t *testing.T, r *Tier, _ tiertest.Allocator, c *key.Chain) error {
			return r.Delete(t.Context(), []key.Key{c.Key(0)})
		}, maxAnswerBytes},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
				r := connect(t, virtualOptions(s))
				c := tiertest.Chain(1, 2)
				put(t, r, m, c, 0, 1, kib)
				r.retries = newAllowance(0, 0)
				s.Set(func(*http.Request) s3test.Fault { return tt.fault })
				if err := tt.do(t, r, m, c); !errors.Is(err, errTooLong) {
					t.Errorf("%v; want %v", err, errTooLong)
				}
				if n := s.Flooded(); n > tt.most+kib {
					t.Errorf("%d bytes were read; want %d at most", n, tt.most)
				}
			})
		})
	}
}

// A page that a proxy answers with, whose elements do not end, is an answer like any error.
func TestPageOfProxy(t *testing.T) {
	page := "<html><body>" + strings.Repeat("<br>\n", 1000) + "</body></html>"
	virtual(t, func(t *testing.T, s *s3test.Memory, m tiertest.Allocator) {
		o := virtualOptions(s)
		store := o.transport
		var between atomic.Bool
		o.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if !between.Load() {
				return store.RoundTrip(r)
			}
			return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(page)), Request: r}, nil
		})
		r := connect(t, o)
		r.retries = newAllowance(0, 0)
		between.Store(true)
		if err := get(t, r, m, tiertest.Chain(1, 2).Key(0)); err == nil || err.Error() != "remote: get: the store answered 502" {
			t.Errorf("%v", err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// What gives out credentials is bounded too, and so is what any says in headers.
func TestCredentialsAreBounded(t *testing.T) {
	const flood = 64 * mib
	s := s3test.Run(t)
	noLogin(t)
	var whole, asked atomic.Int64 // answers
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		fmt.Fprint(w, `{"AccessKeyId":"`)
		piece := strings.Repeat("x", mib)
		for range flood / mib {
			if _, err := fmt.Fprint(w, piece); err != nil {
				return
			}
		}
		whole.Add(1)
	}))
	t.Cleanup(login.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", login.URL)
	r, err := New(testOptions(s.Endpoint))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Connect(t.Context()); !errors.Is(err, errCredentials) {
		t.Errorf("%v; want %v", err, errCredentials)
	}
	if n := whole.Load(); n > 0 || asked.Load() == 0 {
		t.Errorf("%d of %d answers were read to their ends", n, asked.Load())
	}
	header := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Amz-Meta-Long", strings.Repeat("x", 2*maxHeaderBytes))
		w.WriteHeader(http.StatusNotFound)
	}))
	t.Cleanup(header.Close)
	s3test.Credentials(t)
	if r, err = New(testOptions(header.URL)); err != nil {
		t.Fatal(err)
	}
	if err := r.Connect(t.Context()); err == nil || statusOf(err) != 0 {
		t.Errorf("an answer with a header of %d bytes: %v", 2*maxHeaderBytes, err)
	}
}
