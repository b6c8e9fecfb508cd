package lmcache_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// program is LMCache's command with arguments.
func program(t *testing.T, socket string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(filepath.Join(filepath.Dir(lmcache.Python(t)), "lmcache"), args...)
	cmd.Env, cmd.Dir = environment(socket), t.TempDir()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// run has one of LMCache's benchmarks run to its end, and returns what it said.
func run(t *testing.T, socket string, args ...string) string {
	t.Helper()
	cmd := program(t, socket, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	killer := time.AfterFunc(drive.Patience, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer killer.Stop()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("lmcache %s: %v\n%s", strings.Join(args, " "), err, out.String())
	}
	return out.String()
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port)
}

var halfFound = regexp.MustCompile(`Actual hit rate: +0\.50\n`)

// LMCache's own benchmark of adapters stores, looks up and loads, and compares all bytes.
func TestBenchL2(t *testing.T) {
	port := freePort(t)
	d := daemon.Start(t, roomy, func(cfg *config.Config) { cfg.Listen.RESP = []string{"127.0.0.1:" + port} })
	for name, spec := range map[string]object{
		"plugin": adapter(nil),
		"resp":   {"type": "resp", "host": "127.0.0.1", "port": json.Number(port)},
	} {
		said := run(t, d.Socket, "bench", "l2", "--l2-adapter", text(t, spec), "--num-keys", "16", "--data-size-kb", "256", "--rounds", "2", "--no-skip-verify", "--lookup-max-hit-rate", "0.5")
		if !strings.Contains(said, "All 16 keys data verified OK") {
			t.Errorf("%s: not verified:\n%s", name, said)
		}
		if !halfFound.MatchString(said) {
			t.Errorf("%s: not half of the keys were found:\n%s", name, said)
		}
	}
}

// server is LMCache's server.
type server struct {
	t         *testing.T
	cmd       *exec.Cmd
	rpc, http string
	log       string
}

func startServer(t *testing.T, socket string) *server {
	t.Helper()
	s := &server{t: t, rpc: freePort(t), http: freePort(t), log: filepath.Join(t.TempDir(), "server.log")}
	s.cmd = program(t, socket, "server", "--host", "127.0.0.1", "--port", s.rpc, "--http-port", s.http, "--l1-size-gb", "0.25", "--no-l1-use-lazy",
		"--eviction-policy", "LRU", "--supported-transfer-mode", "auto", "--chunk-size", "256", "--l2-adapter", text(t, adapter(nil)))
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.Env = append(s.cmd.Env, "LMCACHE_LOG_LEVEL=INFO")
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	for end := time.Now().Add(drive.Patience); ; time.Sleep(100 * time.Millisecond) {
		if answer, err := http.Get("http://127.0.0.1:" + s.http + "/healthcheck"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			t.Fatalf("LMCache's server does not answer:\n%s", s.said())
		}
	}
}

func (s *server) said() string {
	b, _ := os.ReadFile(s.log)
	return string(b)
}

func (s *server) stop() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(drive.Patience, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
		defer killer.Stop()
		_ = s.cmd.Wait()
	}
}

// A server that has everything already is asked for nothing that its bench could compare with.
var checksums, noneWrong = regexp.MustCompile(`\[seq ./warm\] CHECKSUM: .*`), regexp.MustCompile(`Checksum FAIL: +0\n`)

// bench runs LMCache's benchmark of its server, and returns the checksums that it prints.
func (s *server) bench() []string {
	s.t.Helper()
	said := run(s.t, "", "bench", "server", "--rpc-url", "tcp://127.0.0.1:"+s.rpc, "--url", "http://127.0.0.1:"+s.http, "--mode", "cpu",
		"--kvcache-shape-spec", "(2,256,16,4,64):bfloat16:4", "--num-blocks", "256", "--num-tokens", "1024", "--start", "0", "--end", "4", "--interval", "0.1")
	sums := checksums.FindAllString(said, -1)
	if len(sums) != 4 || !noneWrong.MatchString(said) {
		s.t.Errorf("LMCache's bench:\n%s", said)
	}
	return sums
}

var fromDaemon = regexp.MustCompile(`\(0 L1, 4 L2\).*-cold`)

// LMCache's server has the same bytes after a restart, from the daemon, also where that was
// killed between.
func TestServer(t *testing.T) {
	d := daemon.Start(t, roomy)
	first := startServer(t, d.Socket)
	want := first.bench()
	first.stop()
	for _, kill := range []bool{false, true} {
		if kill {
			d.Flush()
			d.Kill()
			d.Start()
		}
		s := startServer(t, d.Socket)
		if have := s.bench(); !slices.Equal(have, want) {
			t.Errorf("the bench says %q, before %q", have, want)
		}
		if n := len(fromDaemon.FindAllString(s.said(), -1)); n != 4 {
			t.Errorf("%d prompts of 4 came from the daemon:\n%s", n, s.said())
		}
		s.stop()
	}
}

// engine is LMCache in the process of an engine.
type engine struct {
	*drive.Process
	t *testing.T
}

type looked struct{ Found, Had, Loaded, Wrong int }

func startEngine(t *testing.T, socket string, lines string, more object) *engine {
	t.Helper()
	file := filepath.Join(t.TempDir(), "lmcache.yaml")
	if err := os.WriteFile(file, []byte("chunk_size: 256\nlocal_cpu: true\nmax_local_cpu_size: 0.25\n"+lines), 0o600); err != nil {
		t.Fatal(err)
	}
	options := object{"config": file}
	for name, value := range more {
		options[name] = value
	}
	return &engine{lmcache.Start(t, environment(socket), object{"engine": options}), t}
}

// look has the engine find a prompt, and compares what it loads.
func (e *engine) look(when string, tokens []int, own bool, want int) {
	e.t.Helper()
	var l looked
	if e.Ask(object{"do": "look", "tokens": tokens, "own": own}, &l); l != (looked{want, want, want, 0}) {
		e.t.Errorf("%s: %+v, want %d tokens", when, l, want)
	}
}

// The engine of one process finds what it has stored through the plug-in, and over Redis.
func TestEngine(t *testing.T) {
	for name, lines := range map[string]string{
		"plugin": "storage_plugins: [kvstored]\nextra_config:\n  storage_plugin.kvstored.module_path: kvstored.lmcache\n" +
			"  storage_plugin.kvstored.class_name: KvstoredBackend\n",
		"redis": "remote_storage_plugins: [redis]\nextra_config:\n  remote_storage_plugin.redis.redis_url: \"unix://RESP\"\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := daemon.Folder(t, roomy)
			resp := filepath.Join(d.Dir, "resp.sock")
			d.Configure(func(cfg *config.Config) { cfg.Listen.RESP = []string{resp} })
			d.Start()
			lines := strings.ReplaceAll(lines, "RESP", resp)
			e := startEngine(t, d.Socket, lines, nil)
			prompt := make([]int, 8*256+40)
			for i := range prompt {
				prompt[i] = 7 + i
			}
			e.Ask(object{"do": "store", "tokens": prompt}, nil)
			for end := time.Now().Add(drive.Patience); d.Stats().Store.Chunks < 8; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d chunks of 8 are stored\n%s", d.Stats().Store.Chunks, e.Said(4000))
				}
			}
			e.look("all", prompt, false, 8*256)
			e.look("a longer prompt", append(slices.Clone(prompt), make([]int, 600)...), false, 8*256)
			e.look("one that parts", append(slices.Clone(prompt[:3*256+10]), make([]int, 600)...), false, 3*256)
			attached := d.Attached() // none over Redis, which connects with the next call
			d.Stop()
			e.look("the daemon stopped", prompt, false, 0)
			d.Start()
			d.AwaitAttached(attached)
			e.look("started again", prompt, false, 8*256)
			d.Flush()
			d.Kill()
			d.Start()
			d.AwaitAttached(attached)
			e.look("killed and started", prompt, false, 8*256)
			e.Stop()
			startEngine(t, d.Socket, lines, nil).look("another process", prompt, false, 8*256)
			startEngine(t, d.Socket, lines, object{"model": "other"}).look("another model", prompt, false, 0)
			startEngine(t, d.Socket, lines, object{"world": 2, "rank": 1}).look("another rank", prompt, false, 0)
		})
	}
}
