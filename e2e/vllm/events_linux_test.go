package vllm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

const routed = `route:
  listen: ''
  socket: %[1]s/route
  models: [{name: llama, block_tokens: 32}]
  allow: [%[1]s/*]
  workers:
    - {id: first, model: llama, events: 'ipc://%[1]s/first', replay: 'ipc://%[1]s/first-replay'}
    - {id: second, model: llama, events: 'ipc://%[1]s/second', replay: 'ipc://%[1]s/second-replay'}
`

// router is a kvstored-router that hears two engines by ZeroMQ.
type router struct {
	t    *testing.T
	http http.Client
}

func route(t *testing.T, dir string) *router {
	t.Helper()
	file := filepath.Join(dir, "router.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, routed, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon.Router(t), "serve", "--config", file)
	cmd.Env, cmd.Stderr = daemon.Environ(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	r := &router{t: t}
	r.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "route"))
	}}
	t.Cleanup(r.http.CloseIdleConnections)
	return r
}

// says waits until the router says that workers have so many tokens of a prompt: in the
// engine, and with all that lies below.
func (r *router) says(what string, prompt []int, want map[string][2]int) {
	r.t.Helper()
	q, err := json.Marshal(object{"model": "llama", "tokens": prompt})
	if err != nil {
		r.t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		got, text := map[string][2]int{}, ""
		if p, err := r.http.Post("http://localhost/v1/query", "application/json", bytes.NewReader(q)); err == nil {
			var answer struct {
				Workers []struct {
					ID     string
					Tokens []int
				}
			}
			err := json.NewDecoder(p.Body).Decode(&answer)
			p.Body.Close()
			text = fmt.Sprint(answer, err)
			for _, w := range answer.Workers {
				got[w.ID] = [2]int{w.Tokens[0], w.Tokens[len(w.Tokens)-1]}
			}
		}
		if fmt.Sprint(got) == fmt.Sprint(want) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("%s: the router says %s, want %v", what, text, want)
		}
	}
}

// TestEvents: a router that hears two engines over ZeroMQ knows what each has itself, and
// what it has stored in the daemon or found there.
func TestEvents(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy, func(cfg *config.Config) { cfg.Events.Enabled = true })
		r := route(t, d.Dir)
		steps := func(e *engine) { // vLLM publishes with the steps of requests
			for range 3 {
				e.generate([][]int{{4, 5, 6}}, nil)
			}
		}
		engine := func(name string) *engine {
			line := connector("")
			extra := line["kv_connector_extra_config"].(object)
			extra["self_describing_kv_events"] = true
			if tiers, ok := extra["secondary_tiers"].([]object); ok {
				tiers[0]["enable_kv_events"] = true
			} else {
				extra["kvstored"].(object)["enable_kv_events"] = true
			}
			at := "ipc://" + filepath.Join(d.Dir, name)
			return start(t, d.Socket, options{Connector: line, Options: object{
				"kv_events_config": object{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": at, "replay_endpoint": at + "-replay"},
			}})
		}
		first, second := engine("first"), engine("second")
		prompt := drive.Random(seeded(), 1, 1500)
		const n = 1500 / 32 * 32
		first.generate(prompt, nil)
		first.stored(d, blocks(prompt, 32))
		steps(first)
		r.says("computed", prompt[0], map[string][2]int{"first": {n, n}})
		if g := second.generate(prompt, nil); fromDaemon(g) != n {
			t.Fatalf("the second found %v", g.Cached)
		}
		steps(second)
		r.says("found", prompt[0], map[string][2]int{"first": {n, n}, "second": {n, n}})
		second.reset()
		steps(second)
		r.says("forgotten", prompt[0], map[string][2]int{"first": {n, n}})
		d.Kill()
		first.reset()
		steps(first)
		r.says("gone", prompt[0], map[string][2]int{})
	})
}
