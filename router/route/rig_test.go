package route

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/feed"
	"github.com/kvstored/kvstored/router/feed/feedtest"
	"github.com/kvstored/kvstored/router/reach"
)

const (
	testToken = "secret"
	patience  = time.Minute // of a test for what must come
)

// rig is a service that answers over TCP and on a Unix socket.
type rig struct {
	*testing.T
	s    *Service
	tcp  string // host:port
	path string // of the Unix socket
	unix http.Client
}

func newModels() []feed.Model {
	return []feed.Model{{Name: "m", BlockTokens: feedtest.BlockTokens}, {Name: "chunks", ChunkTokens: 4}}
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	allow, err := reach.Parse([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{
		Models: newModels(),
		Allow:  allow, Token: testToken, Log: zerolog.Nop(),
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, s: s, path: filepath.Join(t.TempDir(), "s")}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	for _, at := range [][2]string{{"tcp", "127.0.0.1:0"}, {"unix", r.path}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			t.Fatal(err)
		}
		if at[0] == "tcp" {
			r.tcp = l.Addr().String()
		}
		running.Go(func() { _ = s.Serve(ctx, l, []string{"router.example"}) })
	}
	r.unix.Transport = &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", r.path) }}
	t.Cleanup(func() {
		r.unix.CloseIdleConnections()
		stop()
		running.Wait()
	})
	return r
}

// ask makes a call over the Unix socket; body is JSON, bytes, or nil for a GET.
func (r *rig) ask(path string, body any) (code string, reply map[string]any) {
	r.Helper()
	method, in := http.MethodPost, []byte(nil)
	switch body := body.(type) {
	case nil:
		method = http.MethodGet
	case []byte:
		in = body
	case string:
		in = []byte(body)
	default:
		text, err := json.Marshal(body)
		if err != nil {
			r.Fatal(err)
		}
		in = text
	}
	q, err := http.NewRequestWithContext(r.Context(), method, "http://localhost"+path, bytes.NewReader(in))
	if err != nil {
		r.Fatal(err)
	}
	return r.do(&r.unix, q)
}

func (r *rig) do(c *http.Client, q *http.Request) (code string, reply map[string]any) {
	r.Helper()
	p, err := c.Do(q)
	if err != nil {
		r.Fatal(err)
	}
	defer p.Body.Close()
	text, err := io.ReadAll(p.Body)
	if err != nil {
		r.Fatal(err)
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		if strings.HasPrefix(string(text), "[") {
			return "ok", map[string]any{"list": string(text)}
		}
		return fmt.Sprint(p.StatusCode), map[string]any{"text": string(text)}
	}
	if p.StatusCode == http.StatusOK {
		return "ok", reply
	}
	code, _ = reply["code"].(string)
	if reply["error"] == "" {
		r.Errorf("%s: %s without an error", q.URL, code)
	}
	return code, reply
}

// want makes a call that is to end with a code, and returns the reply.
func (r *rig) want(code, path string, body any) map[string]any {
	r.Helper()
	got, reply := r.ask(path, body)
	if got != code {
		r.Fatalf("%s %.200v: %s, want %s; %v", path, body, got, code, reply)
	}
	return reply
}

// tokens is how many tokens of a prompt a worker has on the GPU.
func (r *rig) tokens(id string, hashes ...int) int {
	r.Helper()
	answer, err := r.s.Query(&Question{Prompt: Prompt{Model: "m", Tokens: feedtest.Tokens(hashes...)}})
	if err != nil {
		r.Fatal(err)
	}
	for _, w := range answer.Workers {
		if w.ID == id {
			return w.Tokens[0]
		}
	}
	return 0
}
