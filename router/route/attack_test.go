package route

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kvstored/kvstored/router/feed/feedtest"
	"github.com/kvstored/kvstored/router/index"
)

// post makes a call over TCP with headers.
func (r *rig) post(path, body string, headers ...string) (code string) {
	r.Helper()
	q, err := http.NewRequestWithContext(r.Context(), http.MethodPost, "http://"+r.tcp+path, strings.NewReader(body))
	if err != nil {
		r.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			q.Host = headers[i+1]
		}
		q.Header.Set(headers[i], headers[i+1])
	}
	code, _ = r.do(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, q)
	return code
}

// Over TCP what changes something takes the token, and pages of other origins get
// nothing.
func TestRights(t *testing.T) {
	r := newRig(t, nil)
	const worker, ask = `{"id": "a", "model": "m"}`, `{"model": "m", "tokens": [1, 1]}`
	for _, wrong := range [][]string{
		nil, {"Authorization", "Bearer "}, {"Authorization", "Bearer Secret"}, {"Authorization", "Bearer secret x"},
		{"Authorization", "Basic secret"}, {"Authorization", "secret"}, {"Authorization", "Bearer secretsecret"},
	} {
		for path, body := range map[string]string{
			"/v1/register": worker, "/v1/unregister": worker, "/v1/first": `{}`, "/v1/free": `{}`,
			"/v1/events?worker=a&epoch=1&seq=0": "", "/v1/select": `{"model": "m", "tokens": [1], "reserve": true}`,
		} {
			if got := r.post(path, body, wrong...); got != "denied" {
				t.Errorf("%s with %q: %s", path, wrong, got)
			}
		}
	}
	if got := r.post("/v1/register", worker, "Authorization", "Bearer "+testToken); got != "ok" {
		t.Errorf("with the token: %s", got)
	}
	if got := r.post("/v1/select", ask[:len(ask)-1]+`, "reserve": true}`); got != "denied" {
		t.Errorf("a reservation without the token: %s", got)
	}
	for _, path := range []string{"/v1/query", "/v1/select"} {
		if got := r.post(path, ask); got != "ok" {
			t.Errorf("%s without a token: %s", path, got)
		}
		for _, foreign := range [][]string{{"Host", "attacker.example"}, {"Origin", "http://attacker.example"}, {"Origin", "null"}} {
			if got := r.post(path, ask, append(foreign, "Authorization", "Bearer "+testToken)...); got != "403" {
				t.Errorf("%s with %q: %s", path, foreign, got)
			}
		}
		if got := r.post(path, ask, "Host", "router.example:9465"); got != "ok" {
			t.Errorf("%s under its own name: %s", path, got)
		}
	}

	closed := newRig(t, func(o *Options) { o.Closed = true })
	closed.want("ok", "/v1/register", worker)
	if got := closed.post("/v1/query", ask); got != "denied" {
		t.Errorf("a closed listener answers without the token: %s", got)
	}
	if got := closed.post("/v1/query", ask, "Authorization", "Bearer "+testToken); got != "ok" {
		t.Errorf("a closed listener with it: %s", got)
	}
	none := newRig(t, func(o *Options) { o.Token = "" })
	if got := none.post("/v1/register", worker, "Authorization", "Bearer "); got != "denied" {
		t.Errorf("without a token of its own: %s", got)
	}
}

// Bodies that do not come to their end hold up no other call.
func TestSlowBodies(t *testing.T) {
	r := newRig(t, nil)
	r.want("ok", "/v1/register", `{"id": "a", "model": "m"}`)
	var all []net.Conn
	for range 200 {
		c, err := net.Dial("tcp", r.tcp)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		fmt.Fprintf(c, "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n{", promptBody)
	}
	for range 20 {
		if got := r.post("/v1/query", `{"model": "m", "tokens": [1, 1]}`); got != "ok" {
			t.Fatalf("beside 200 slow bodies: %s", got)
		}
	}
	for _, c := range all {
		_ = c.Close()
	}
}

// Bodies for which there is no memory are refused, and the memory comes back.
func TestBodyBudget(t *testing.T) {
	r := newRig(t, nil)
	r.want("ok", "/v1/register", `{"id": "a", "model": "m"}`)
	large := `{"model": "m", "tokens": [` + strings.Repeat("1,", 4<<20) + `1]}` // 8 MiB: 24 of the budget, and then twice that
	if !r.s.bodies.TryAcquire(bodyBudget - 40<<20) {
		t.Fatal("the budget is in use")
	}
	if got := r.post("/v1/query", large); got != "busy" {
		t.Errorf("without room: %s", got)
	}
	r.s.bodies.Release(bodyBudget - 40<<20)
	if got := r.post("/v1/query", large); got != "ok" {
		t.Errorf("with room: %s", got)
	}
	for end := time.Now().Add(patience); !r.s.bodies.TryAcquire(bodyBudget); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("bodies that are done keep their memory")
		}
	}
}

var registrations = flag.Int("registrations", 400, "workers that TestManyRegistrations has at a time")

// Many workers that come and go at the same time leave nothing behind, and queries
// go on.
func TestManyRegistrations(t *testing.T) {
	r := newRig(t, func(o *Options) { o.MaxWorkers = *registrations + 1 })
	const users = 8
	each := *registrations / users
	var running sync.WaitGroup
	for u := range users {
		running.Go(func() {
			for i := range each {
				w := Worker{ID: fmt.Sprint(u, "/", i), Model: "m", Events: fmt.Sprintf("tcp://127.0.%d.%d:%d", u, 2+i/1000, 1+i%1000)} // nobody is there
				if i%3 == 0 {
					w.Events = Post
				}
				if err := r.s.Register(w); err != nil {
					t.Error(err)
				}
				if _, err := r.s.Query(&Question{Prompt: Prompt{Model: "m", Tokens: []uint32{1, 1}}}); err != nil {
					t.Error(err)
				}
			}
			if err := r.s.Register(Worker{ID: "one", Model: "m"}); err != nil && !errors.Is(err, index.ErrWorkerExists) {
				t.Error(err)
			}
			for i := range each {
				if err := r.s.Unregister(index.Worker{ID: fmt.Sprint(u, "/", i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if got := r.s.Workers(); len(got) != 1 || len(r.s.mu.taken) != 0 || len(r.s.index.Workers()) != 1 {
		t.Errorf("%d workers, %d endpoints are left", len(got), len(r.s.mu.taken))
	}
}

// The pages answer, and the metrics name workers.
func TestPages(t *testing.T) {
	r := newRig(t, nil)
	r.want("ok", "/v1/register", `{"id": "a\"\n", "model": "m", "events": "tcp://127.0.0.1:1"}`)
	for path, want := range map[string]string{
		"/": "/metrics", "/healthz": "ok\n", "/readyz": "is not heard", "/metrics": `kvstored_route_worker_events_total{kind="gaps",rank="0",source="engine",worker="a\"\n"} 0`,
	} {
		p, err := http.Get("http://" + r.tcp + path)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(p.Body)
		_ = p.Body.Close()
		if err != nil || p.StatusCode != http.StatusOK || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d, %v, %.300s", path, p.StatusCode, err, text)
		}
	}
}

// A call never panics for its body.
func FuzzCalls(f *testing.F) {
	f.Add(uint8(0), []byte(`{"id": "a", "model": "m"}`))
	f.Add(uint8(5), []byte(`{"model": "m", "tokens": [1, 2], "temperature": 1e308}`))
	f.Add(uint8(4), []byte(`{"model": "m", "hashes": ["0123456789abcdef", 18446744073709551615]}`))
	f.Add(uint8(8), feedtest.Batch(feedtest.Stored(nil, 1)))
	s, err := New(Options{Models: newModels()})
	if err != nil {
		f.Fatal(err)
	}
	if err := s.Register(Worker{ID: "a", Model: "m", Events: Post}); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, which uint8, body []byte) {
		c := &calls[int(which)%len(calls)]
		q, _ := http.NewRequest(c.method, "http://localhost"+c.path+"?worker=a&epoch=1&seq=0", nil)
		if c.path != "/v1/unregister" {
			_, _ = c.do(s, q, body)
		}
	})
}
