package s3test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Memory is an S3 store of one bucket in this process, for an SDK client as its
// transport. There is no network in between, so that it works in virtual time
// (testing/synctest): a test sees exactly how many rounds of requests something
// takes.
type Memory struct {
	*Faults

	objects *objects
	mu      struct {
		sync.Mutex
		flying map[string]int // requests under way, by method; "" is all
		most   map[string]int // at a time
		bodies int            // of answers, not closed yet
	}
}

// NewMemory makes a store without objects, with this Latency.
func NewMemory(latency time.Duration) *Memory {
	m := &Memory{objects: newObjects()}
	m.Faults = newFaults(m.objects)
	m.Latency = latency
	m.mu.flying, m.mu.most = make(map[string]int), make(map[string]int)
	return m
}

// Most is how many requests of a method were under way at a time, their bodies
// included; "" means all.
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

// Objects are the names of the stored objects, but for those with which daemons try a store.
func (m *Memory) Objects() []string {
	return slices.DeleteFunc(m.objects.names(), func(name string) bool { return strings.Contains(name, "/canary/") })
}

// Store puts an object, also over another. Of the header the fields remain that
// start with X-Amz-Meta-.
func (m *Memory) Store(name string, header http.Header, body []byte) {
	_ = m.objects.put(name, newObject(header, body), condition{})
}

// Object returns what Store, or a request, has stored.
func (m *Memory) Object(name string) (http.Header, []byte) {
	o, _ := m.objects.get(name)
	return o.header.Clone(), o.body
}

func (m *Memory) begin(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, method := range []string{method, ""} {
		m.mu.flying[method]++
		m.mu.most[method] = max(m.mu.most[method], m.mu.flying[method])
	}
}

func (m *Memory) end(method string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.flying[method]--
	m.mu.flying[""]--
}

// RoundTrip implements http.RoundTripper.
func (m *Memory) RoundTrip(r *http.Request) (*http.Response, error) {
	m.begin(r.Method)
	if r.Body != nil {
		defer r.Body.Close()
	}
	resp, err := m.Faults.RoundTrip(r)
	if err != nil {
		m.end(r.Method)
		return nil, err
	}
	m.mu.Lock()
	m.mu.bodies++
	m.mu.Unlock()
	resp.Body = &counted{Reader: resp.Body, m: m, method: r.Method}
	return resp, nil
}

// counted is the body of an answer; closing it ends the request.
type counted struct {
	io.Reader
	m      *Memory
	method string
	once   sync.Once
}

// Close implements io.Closer.
func (c *counted) Close() error {
	c.once.Do(func() {
		c.m.end(c.method)
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		c.m.mu.bodies--
	})
	return nil
}
