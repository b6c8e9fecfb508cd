package router_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/bench/trace"
	"github.com/kvstored/kvstored/router/route"
)

var (
	routeTrace  = flag.String("trace", filepath.Join(daemon.Root(), "../shared/traces/conversation_trace.jsonl"), "the trace of TestRouteEndToEnd; without it, made-up conversations")
	routePlayed = flag.Int("requests", 1500, "requests of it that are played")
	routeAsked  = flag.Int("asked", 1000, "prompts that are asked for after each event")
)

const (
	routeChunk = 4 // tokens
	routeModel = "routed"
	routeOpen  = 8 // requests at a time
)

// routed is two daemons and a router over them, each in a process of its own, and a
// bridge from each daemon to the router where it is bridged.
type routed struct {
	*testing.T
	dir     string
	daemons [2]*daemon.Daemon
	clients [2]*client.Client
	bridges [2]*exec.Cmd
	socket  string // of the router
	config  string
	cmd     *exec.Cmd
	http    http.Client
	open    []uint64 // reservations
}

func newRouted(t *testing.T, bridged bool) *routed {
	r := &routed{T: t}
	dir, err := os.MkdirTemp("", "kvstored-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	r.dir, r.config, r.socket = dir, filepath.Join(dir, "router.yaml"), filepath.Join(dir, "route")
	conf := fmt.Sprintf("route:\n  listen: ''\n  socket: %s\n  grace: 1s\n  models: [{name: %s, chunk_tokens: %d}]\n  allow: [%s/*, %%s, %%s]\n  workers:\n", r.socket, routeModel, routeChunk, dir)
	for i := range r.daemons {
		r.daemons[i] = daemon.Start(t, func(c *config.Config) {
			c.Events.Enabled = true
			c.CPU.Capacity = 16 << 20
		})
		at := "kvstored: " + r.daemons[i].Socket
		if bridged {
			at = fmt.Sprintf("kvstored: 'ipc://%s', kvstored_replay: 'ipc://%s'", r.at("pub", i), r.at("replay", i))
			r.startBridge(i)
			t.Cleanup(func() { kill(r.bridges[i]) })
		}
		conf += fmt.Sprintf("    - {id: '%d', model: %s, prefill: 500, %s}\n", i, routeModel, at)
		r.dial(i)
	}
	conf = fmt.Sprintf(conf, r.daemons[0].Socket, r.daemons[1].Socket)
	if err := os.WriteFile(r.config, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	r.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}
	t.Cleanup(r.http.CloseIdleConnections)
	r.startRouter()
	t.Cleanup(func() { kill(r.cmd) })
	return r
}

// at is a socket of the bridge of a daemon.
func (r *routed) at(what string, i int) string { return filepath.Join(r.dir, fmt.Sprint(what, i)) }

// start runs the router's program.
func (r *routed) start(args ...string) *exec.Cmd {
	r.Helper()
	cmd := exec.Command(daemon.Router(r), args...)
	cmd.Env = daemon.Environ()
	cmd.Stderr = r.Output()
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	return cmd
}

func (r *routed) startBridge(i int) {
	r.Helper()
	r.bridges[i] = r.start("bridge", "--socket", r.daemons[i].Socket, "--publish", r.at("pub", i), "--replay", r.at("replay", i), "--grace", "1s")
}

// kill is kill -9.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func (r *routed) dial(i int) {
	r.Helper()
	space := key.Space{Model: routeModel, World: 1, DType: "x", ChunkTokens: routeChunk, Method: key.SHA256}
	c, err := client.Dial(r.Context(), r.daemons[i].Socket, client.Options{Space: &space})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { c.Close() })
	r.clients[i] = c
}

// startRouter runs the router and waits until it answers.
func (r *routed) startRouter() {
	r.Helper()
	r.cmd = r.start("serve", "--config", r.config)
	r.until("the router answers", func() error {
		p, err := r.http.Get("http://localhost/healthz")
		if err == nil {
			err = p.Body.Close()
		}
		return err
	})
}

// until repeats what fails until it does not.
func (r *routed) until(what string, do func() error) {
	r.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			r.Fatalf("%s: %v", what, err)
		}
	}
}

// call makes a call of the router.
func (r *routed) call(path string, q, reply any) error {
	body, err := json.Marshal(q)
	if err != nil {
		return err
	}
	p, err := r.http.Post("http://localhost"+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer p.Body.Close()
	text, err := io.ReadAll(p.Body)
	if err == nil && p.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, text)
	}
	if err == nil && reply != nil {
		err = json.Unmarshal(text, reply)
	}
	return err
}

// heard is how many batches the router has heard of a daemon, and whether it is
// connected to it.
func (r *routed) heard(i int) (batches uint64, connected bool) {
	r.Helper()
	p, err := r.http.Get("http://localhost/v1/workers")
	if err != nil {
		r.Fatal(err)
	}
	defer p.Body.Close()
	var all []route.State
	if err := json.NewDecoder(p.Body).Decode(&all); err != nil || len(all) != len(r.daemons) {
		r.Fatalf("%+v, %v", all, err)
	}
	return all[i].Daemon.Batches, all[i].Connected
}

// play has the router say where a request goes, and stores its prompt there.
func (r *routed) play(tokens []uint32) (worker int, err error) {
	var chosen route.Selected
	q := route.Selection{Prompt: route.Prompt{Model: routeModel, Tokens: tokens}, Reserve: true}
	if err := r.call("/v1/select", &q, &chosen); err != nil {
		return 0, err
	}
	if _, err := fmt.Sscan(chosen.ID, &worker); err != nil {
		return 0, err
	}
	payloads := make([][]byte, len(tokens)/routeChunk)
	for i := range payloads {
		payloads[i] = bytes.Repeat([]byte{byte(tokens[i*routeChunk])}, 2<<10)
	}
	if _, err := r.clients[worker].Put(r.Context(), client.Tokens(tokens), 0, payloads); err != nil {
		return 0, err
	}
	if r.open = append(r.open, chosen.Reservation); len(r.open) < routeOpen {
		return worker, nil
	}
	first := r.open[0]
	r.open = r.open[1:]
	return worker, r.call("/v1/free", &route.Progress{Reservation: first}, nil)
}

// same compares what the router says of a prompt with what the daemons say that are
// there.
func (r *routed) same(tokens []uint32, there ...int) error {
	var answer route.Answer
	if err := r.call("/v1/query", &route.Question{Prompt: route.Prompt{Model: routeModel, Tokens: tokens}}, &answer); err != nil {
		return err
	}
	said := make(map[string]int)
	for _, w := range answer.Workers {
		said[w.ID] = w.Tokens[len(w.Tokens)-1]
	}
	for _, i := range there {
		m, err := r.clients[i].Lookup(r.Context(), client.Tokens(tokens), 0)
		if err != nil {
			return err
		}
		id := fmt.Sprint(i)
		if has := int(m.Total.Chunks) * routeChunk; said[id] != has {
			return fmt.Errorf("of %d tokens the router says that worker %s has %d, and it has %d", len(tokens), id, said[id], has)
		}
		delete(said, id)
	}
	if len(said) > 0 {
		return fmt.Errorf("the router says of workers that are gone: %v", said)
	}
	return nil
}

// playAll plays prompts, and wants both workers to get some.
func (r *routed) playAll(prompts [][]uint32) {
	r.Helper()
	var given [2]int
	for _, p := range prompts {
		worker, err := r.play(p)
		if err != nil {
			r.Fatal(err)
		}
		given[worker]++
	}
	r.Logf("%d requests to the one, %d to the other", given[0], given[1])
	if given[0] == 0 || given[1] == 0 {
		r.Errorf("all went to one of them: %v", given)
	}
}

// deleted stores prompts, deletes every second of them, and wants the router to know.
func (r *routed) deleted() {
	r.Helper()
	for i := range r.clients {
		for n := range uint32(20) {
			tokens := []uint32{1 << 30, uint32(i), n, 0, 1, 2, 3, 4}
			put := func() error {
				_, err := r.clients[i].Put(r.Context(), client.Tokens(tokens), 0, [][]byte{{1}, {2}})
				return err
			}
			r.until("a prompt is stored", func() error { return errors.Join(put(), r.same(tokens, 0, 1)) })
			if n%2 == 0 {
				continue
			}
			if _, err := r.clients[i].DeletePrompt(r.Context(), client.Tokens(tokens)); err != nil {
				r.Fatal(err)
			}
			r.until("a prompt is deleted", func() error { return r.same(tokens, 0, 1) })
		}
	}
}

// equal wants the router to say of prompts what the daemons say that are there.
func (r *routed) equal(what string, prompts [][]uint32, there ...int) {
	r.Helper()
	rnd := rand.New(rand.NewPCG(2, 2))
	hits := 0
	for range *routeAsked {
		p := prompts[rnd.IntN(len(prompts))]
		p = p[:len(p)-rnd.IntN(len(p))/2]
		r.until(what, func() error { return r.same(p, there...) })
		if m, err := r.clients[there[0]].Lookup(r.Context(), client.Tokens(p), 0); err == nil && m.Total.Chunks > 0 {
			hits++
		}
	}
	r.Logf("%s: %d prompts asked for, %d of them found on worker %d", what, *routeAsked, hits, there[0])
	if hits == 0 {
		r.Errorf("%s: nothing is found", what)
	}
}

// routePrompts are the prompts of a trace, a chunk for each block.
func routePrompts(t *testing.T) (all [][]uint32) {
	t.Helper()
	chunk := func(id uint64) []uint32 { return []uint32{uint32(id) + 1, uint32(id >> 32), 3, 4} }
	requests, err := trace.Read(*routeTrace, *routePlayed)
	if errors.Is(err, fs.ErrNotExist) {
		rnd := rand.New(rand.NewPCG(1, 1))
		var open [][]uint32 // conversations, which grow
		for n := uint64(0); len(all) < *routePlayed; {
			if len(open) < 50 {
				open = append(open, chunk(rnd.Uint64N(5))) // some begin alike
			}
			i := rnd.IntN(len(open))
			for range 1 + rnd.IntN(8) {
				n++
				open[i] = append(open[i], chunk(1000+n)...)
			}
			all = append(all, slices.Clone(open[i]))
			if len(open[i]) > 60*routeChunk {
				open[i] = open[len(open)-1]
				open = open[:len(open)-1]
			}
		}
		return all
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range requests {
		var tokens []uint32
		for _, id := range q.Blocks {
			tokens = append(tokens, chunk(id)...)
		}
		all = append(all, tokens)
	}
	return all
}

// A replay is split between two daemons by a router. It says of each prompt what
// both daemons say when they are asked; and again after kill -9 of each of the three.
func TestRouteEndToEnd(t *testing.T) {
	t.Parallel()
	r := newRouted(t, false)
	prompts := routePrompts(t)
	r.playAll(prompts)
	r.equal("after the replay", prompts, 0, 1)
	r.deleted()
	for i := range r.daemons {
		if _, err := r.clients[i].Flush(t.Context(), false); err != nil { // else nothing comes back
			t.Fatal(err)
		}
		r.daemons[i].Kill()
		r.equal(fmt.Sprintf("daemon %d is killed", i), prompts, 1-i)
		before, _ := r.heard(i)
		r.daemons[i].Start()
		r.until("the router hears a daemon that no client has told its space", func() error {
			if n, connected := r.heard(i); !connected || n == before {
				return errors.New("it does not")
			}
			return nil
		})
		r.dial(i)
		r.equal(fmt.Sprintf("daemon %d is back", i), prompts, i, 1-i)
	}
	kill(r.cmd)
	if _, err := r.play(prompts[0]); err == nil {
		t.Error("a router that is killed answers")
	}
	r.startRouter()
	r.equal("the router is back", prompts, 0, 1)
}

// Over bridges the same holds, whichever of the processes is killed: the daemon, the
// bridge, while its daemon is told of more, or the router.
func TestBridges(t *testing.T) {
	t.Parallel()
	r := newRouted(t, true)
	prompts := routePrompts(t)
	half := len(prompts) / 2
	r.playAll(prompts[:half])
	r.equal("after the replay", prompts[:half], 0, 1)
	r.deleted()
	for i := range r.daemons {
		if _, err := r.clients[i].Flush(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		r.daemons[i].Kill()
		r.equal(fmt.Sprintf("daemon %d is killed", i), prompts[:half], 1-i)
		r.daemons[i].Start()
		r.dial(i)
		r.equal(fmt.Sprintf("daemon %d is back", i), prompts[:half], i, 1-i)
	}
	for i := range r.bridges {
		kill(r.bridges[i])
		r.until("the router forgets the worker of a bridge that is killed", func() error {
			if _, connected := r.heard(i); connected {
				return errors.New("it does not")
			}
			return nil
		})
	}
	r.playAll(prompts[half:])
	for i := range r.bridges {
		r.startBridge(i)
	}
	r.equal("the bridges are back", prompts, 0, 1)
	kill(r.cmd)
	r.startRouter()
	r.equal("the router is back", prompts, 0, 1)
}
