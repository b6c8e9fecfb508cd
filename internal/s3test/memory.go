package s3test

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Memory is an S3 store of one bucket in this process, for an SDK client as
// its transport. There is no network in between, so that it works in virtual
// time (testing/synctest): what a test sees is exactly how many rounds of
// requests something takes. It knows what the remote tier asks for, path style
// only.
type Memory struct {
	// Latency is how long each request takes to its answer.
	Latency time.Duration

	mu struct {
		sync.Mutex
		rule    Rule
		objects map[string]object
		count   map[string]int // requests by method
		flying  map[string]int // now
		most    map[string]int // at a time
		bodies  int            // of answers, not closed yet
	}
}

type object struct {
	header   http.Header // x-amz-meta-*
	body     []byte
	modified time.Time
}

// NewMemory makes a store without objects.
func NewMemory(latency time.Duration) *Memory {
	m := &Memory{Latency: latency}
	m.mu.objects = make(map[string]object)
	m.mu.count, m.mu.flying, m.mu.most = make(map[string]int), make(map[string]int), make(map[string]int)
	return m
}

// Set makes rule the one for requests from now on; nil lets all pass.
func (m *Memory) Set(rule Rule) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.rule = rule
}

// Count is how many requests of a method there were; "" means all.
func (m *Memory) Count(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.count[method]
}

// Most is how many requests of a method, or all, were under way at a time, their
// bodies included.
func (m *Memory) Most(method string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.most[method]
}

// Open is how many bodies of answers were not closed.
func (m *Memory) Open() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.bodies
}

// Objects are the names of what is stored.
func (m *Memory) Objects() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.mu.objects))
}

// Store puts an object where there may be one already. Of the header only what
// starts with X-Amz-Meta- comes back.
func (m *Memory) Store(name string, header http.Header, body []byte) {
	m.store(name, header, body, true)
}

// store reports whether it did: not if the object is there and replace is false.
func (m *Memory) store(name string, header http.Header, body []byte, replace bool) bool {
	o := object{header: make(http.Header), body: body, modified: time.Now()}
	for field, values := range header {
		if strings.HasPrefix(field, "X-Amz-Meta-") {
			o.header[field] = values
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, there := m.mu.objects[name]; there && !replace {
		return false
	}
	m.mu.objects[name] = o
	return true
}

// Object returns what Store, or a request, has stored.
func (m *Memory) Object(name string) (http.Header, []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o := m.mu.objects[name]
	return o.header.Clone(), o.body
}

// begin counts a request and decides what happens to it.
func (m *Memory) begin(r *http.Request) Fault {
	m.mu.Lock()
	for _, method := range []string{r.Method, ""} {
		m.mu.count[method]++
		m.mu.flying[method]++
		m.mu.most[method] = max(m.mu.most[method], m.mu.flying[method])
	}
	rule := m.mu.rule
	m.mu.Unlock()
	if rule == nil {
		return Fault{}
	}
	return rule(r)
}

func (m *Memory) end(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.flying[method]--
	m.mu.flying[""]--
}

// RoundTrip implements http.RoundTripper.
func (m *Memory) RoundTrip(r *http.Request) (*http.Response, error) {
	f := m.begin(r)
	if r.Body != nil {
		defer r.Body.Close()
	}
	resp, err := m.answer(r, f)
	if err != nil {
		m.end(r.Method)
		return nil, err
	}
	m.mu.Lock()
	m.mu.bodies++
	m.mu.Unlock()
	resp.Request, resp.Proto, resp.ProtoMajor, resp.ProtoMinor = r, "HTTP/1.1", 1, 1
	resp.Body = &answer{Reader: resp.Body, m: m, method: r.Method}
	return resp, nil
}

func (m *Memory) answer(r *http.Request, f Fault) (*http.Response, error) {
	if err := pause(r.Context(), m.Latency+f.Delay); err != nil {
		return nil, err
	}
	switch {
	case f.Reset:
		return nil, fmt.Errorf("read: %w", syscall.ECONNRESET)
	case f.Status != 0:
		return failed(f.Status, f.Code, r.Header.Get("Authorization")), nil
	}
	_, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case r.Method == http.MethodPut:
		return m.put(r, name)
	case r.Method == http.MethodPost:
		return m.delete(r)
	case r.URL.Query().Has("list-type"):
		return m.list(r.URL.Query()), nil
	}
	return m.get(r, name, f), nil
}

// pause lets d pass.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func failed(status int, code, said string) *http.Response {
	return ok(status, fmt.Sprintf("<Error><Code>%s</Code><Message>said to %s</Message></Error>", code, said))
}

func ok(status int, text string) *http.Response {
	return &http.Response{
		StatusCode: status, Header: http.Header{"Content-Type": {"application/xml"}},
		ContentLength: int64(len(text)), Body: io.NopCloser(strings.NewReader(text)),
	}
}

func (m *Memory) put(r *http.Request, name string) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	if !m.store(name, r.Header, body, r.Header.Get("If-None-Match") != "*") {
		return failed(http.StatusPreconditionFailed, "PreconditionFailed", ""), nil
	}
	return ok(http.StatusOK, ""), nil
}

func (m *Memory) delete(r *http.Request) (*http.Response, error) {
	var names struct {
		Object []struct{ Key string }
	}
	if err := xml.NewDecoder(r.Body).Decode(&names); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range names.Object {
		delete(m.mu.objects, o.Key)
	}
	return ok(http.StatusOK, "<DeleteResult></DeleteResult>"), nil
}

// listPage is how many objects an answer names, as everywhere.
const listPage = 1000

func (m *Memory) list(q url.Values) *http.Response {
	var text strings.Builder
	last := max(q.Get("start-after"), q.Get("continuation-token"))
	n := 0
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.mu.objects)) {
		if name <= last || !strings.HasPrefix(name, q.Get("prefix")) {
			continue
		}
		if n++; n > listPage {
			fmt.Fprintf(&text, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", last)
			break
		}
		fmt.Fprintf(&text, "<Contents><Key>%s</Key><Size>%d</Size></Contents>", name, len(m.mu.objects[name].body))
		last = name
	}
	return ok(http.StatusOK, "<ListBucketResult>"+text.String()+"</ListBucketResult>")
}

// get answers GET and HEAD.
func (m *Memory) get(r *http.Request, name string, f Fault) *http.Response {
	m.mu.Lock()
	o, there := m.mu.objects[name]
	m.mu.Unlock()
	switch {
	case !there && r.Method == http.MethodHead:
		return ok(http.StatusNotFound, "")
	case !there:
		return failed(http.StatusNotFound, "NoSuchKey", "")
	}
	resp := &http.Response{StatusCode: http.StatusOK, Header: o.header.Clone(), ContentLength: int64(len(o.body)), Body: http.NoBody}
	resp.Header.Set("Content-Length", fmt.Sprint(len(o.body)))
	resp.Header.Set("Last-Modified", o.modified.UTC().Format(http.TimeFormat))
	if r.Method == http.MethodHead {
		return resp
	}
	body := io.Reader(bytes.NewReader(o.body))
	switch {
	case f.Truncate:
		body = io.MultiReader(bytes.NewReader(o.body[:len(o.body)/2]), broken{})
	case f.Overlong:
		resp.ContentLength = -1
		resp.Header.Del("Content-Length")
		body = io.MultiReader(body, bytes.NewReader(make([]byte, 4096)))
	case f.Flip:
		body = &flip{r: body, at: int64(len(o.body) / 2)}
	case f.Trickle > 0:
		body = &trickle{r: body, ctx: r.Context(), each: f.Trickle}
	}
	resp.Body = io.NopCloser(body)
	return resp
}

// answer is the body of an answer; closing it ends the request.
type answer struct {
	io.Reader
	m      *Memory
	method string
	once   sync.Once
}

func (a *answer) Close() error {
	a.once.Do(func() {
		a.m.end(a.method)
		a.m.mu.Lock()
		defer a.m.mu.Unlock()
		a.m.mu.bodies--
	})
	return nil
}

// broken is a connection that has ended.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// trickle gives a kilobyte at a time.
type trickle struct {
	r    io.Reader
	ctx  context.Context
	each time.Duration
}

func (t *trickle) Read(p []byte) (int, error) {
	if err := pause(t.ctx, t.each); err != nil {
		return 0, err
	}
	return t.r.Read(p[:min(len(p), 1<<10)])
}
