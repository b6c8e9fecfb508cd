package vllm_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// served is a `vllm serve` in processes of its own, asked by HTTP.
type served struct {
	t   *testing.T
	url string
	log string
	cmd *exec.Cmd
}

func serve(t *testing.T, d *daemon.Daemon, connector object) *served {
	t.Helper()
	interpreter := vllm.Python(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	connector["kv_role"] = "kv_both"
	transfer, err := json.Marshal(connector)
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(t.TempDir(), "serve-*.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s := &served{t: t, url: "http://127.0.0.1:" + strconv.Itoa(port), log: log.Name()}
	s.cmd = exec.Command(filepath.Join(filepath.Dir(interpreter), "vllm"), "serve", vllm.Model(t, "llama"), "--served-model-name", "llama",
		"--host", "127.0.0.1", "--port", strconv.Itoa(port), "--dtype", "float32", "--enforce-eager", "--max-model-len", "8192", "--max-num-seqs", "8",
		"--block-size", "32", "--prefix-caching-hash-algo", "sha256_cbor", "--kv-transfer-config", string(transfer))
	s.cmd.Env = vllm.Environment(d.Socket, "VLLM_NO_USAGE_STATS=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.stop)
	for end := time.Now().Add(3 * patience); ; time.Sleep(100 * time.Millisecond) {
		if r, err := http.Get(s.url + "/health"); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(s.log)
			t.Fatalf("vllm serve does not answer\n%s", text[max(0, len(text)-8000):])
		}
	}
}

func (s *served) stop() {
	if s.cmd.ProcessState != nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	killer := time.AfterFunc(patience, func() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) })
	_ = s.cmd.Wait() // its exit code after a signal is vLLM's
	killer.Stop()
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) // what it has left behind
}

// complete is the text of each prompt's answer.
func (s *served) complete(prompts [][]int) (texts []string) {
	s.t.Helper()
	for _, prompt := range prompts {
		q, err := json.Marshal(object{"model": "llama", "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true})
		if err != nil {
			s.t.Fatal(err)
		}
		r, err := http.Post(s.url+"/v1/completions", "application/json", bytes.NewReader(q))
		if err != nil {
			s.t.Fatal(err)
		}
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		var answer struct{ Choices []struct{ Text string } }
		if err != nil || json.Unmarshal(text, &answer) != nil || len(answer.Choices) != 1 {
			s.t.Fatalf("%v, %s", err, text)
		}
		texts = append(texts, answer.Choices[0].Text)
	}
	return texts
}

// cached is how many tokens came from each source so far.
func (s *served) cached() map[string]int {
	s.t.Helper()
	r, err := http.Get(s.url + "/metrics")
	if err != nil {
		s.t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^vllm:prompt_tokens_cached_by_source_total\{.*source="(\w+)".*\} (\S+)$`).FindAllStringSubmatch(string(text), -1) {
		if n, err := strconv.ParseFloat(m[2], 64); err == nil && n > 0 {
			out[m[1]] = int(n)
		}
	}
	if !strings.Contains(string(text), "vllm:kvstored_lookups") {
		s.t.Error("the metrics of vLLM have none of kvstored's")
	}
	return out
}

// TestServe: `vllm serve`, whose scheduler and workers are processes of their own, finds
// after a restart what it stored before.
func TestServe(t *testing.T) {
	each(t, func(t *testing.T, connector func(string) object) {
		d := daemon.Start(t, roomy)
		prompts := drive.Random(seeded(), 6, 1500)
		n := blocks(prompts, 32)
		first := serve(t, d, connector(""))
		want := first.complete(prompts)
		for end := time.Now().Add(patience); d.Stats().Store.Chunks < n; {
			first.complete([][]int{{4, 5, 6}}) // what the last step computed is stored with the next request
			if time.Now().After(end) {
				t.Fatalf("%d chunks of %d are stored", d.Stats().Store.Chunks, n)
			}
		}
		first.stop()
		second := serve(t, d, connector(""))
		if got := second.complete(prompts); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after a restart the answers are %q, want %q", got, want)
		}
		found := 0
		for _, tokens := range second.cached() {
			found += tokens
		}
		if found < total(prompts)*9/10 {
			t.Errorf("of %d tokens came %v", total(prompts), second.cached())
		}
	})
}
