package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/bench/measure"
)

// engine is a vLLM that is timed.
type engine interface {
	started(ctx context.Context) error
	// generate has prompts answered together.
	generate(ctx context.Context, prompts [][]int, tokens int) (generated, error)
	// forget empties the engine's own cache, and the connector's.
	forget(ctx context.Context, connector bool) error
	// settle has what was computed stored.
	settle(ctx context.Context) error
}

// generated is what an engine says of answers.
type generated struct {
	Cached    map[string]int // tokens, by where they came from
	Seconds   float64
	Steps     int     // of the engine; 0 if not known
	Processor float64 // seconds of its process; 0 if not known
}

// launch starts an engine.
func (b *bench) launch(kit *measure.EngineKit, processes *measure.Processes, name string, longest int) (engine, error) {
	env := []string{
		"VLLM_NO_USAGE_STATS=1", "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "KVSTORED_SOCKET=" + b.daemon.Socket,
	}
	model, connector, log := filepath.Join(kit.Models, b.model), connectors(b.work)[name], filepath.Join(b.work, name+".log")
	if !b.http {
		e, err := kit.Launch(processes, append(env, "VLLM_ENABLE_V1_MULTIPROCESSING=0"), log, object{
			"model": model, "connector": connector, "options": object{"max_model_len": longest, "block_size": b.block},
		})
		return direct{e}, err
	}
	port, err := measure.Port()
	if err != nil {
		return nil, err
	}
	s := &served{url: fmt.Sprintf("http://127.0.0.1:%d", port), cached: map[string]int{}}
	args := []string{
		"serve", model, "--served-model-name", "m", "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--dtype", "float32", "--enforce-eager",
		"--max-model-len", strconv.Itoa(longest), "--max-num-seqs", strconv.Itoa(batch), "--block-size", strconv.Itoa(b.block),
		"--prefix-caching-hash-algo", "sha256_cbor",
	}
	if len(connector) > 0 {
		connector["kv_role"] = "kv_both"
		text, err := json.Marshal(connector)
		if err != nil {
			return nil, err
		}
		args = append(args, "--kv-transfer-config", string(text))
	}
	s.process, err = kit.Program(processes, append(env, "VLLM_SERVER_DEV_MODE=1"), log, "vllm", args...)
	return s, err
}

// direct is an engine in a process of drive.py.
type direct struct{ *measure.Engine }

func (d direct) started(ctx context.Context) error { return d.Hear(ctx, nil) }

func (d direct) generate(ctx context.Context, prompts [][]int, tokens int) (g generated, err error) {
	return g, d.Ask(ctx, object{"do": "generate", "prompts": prompts, "tokens": tokens, "together": true}, &g)
}

func (d direct) forget(ctx context.Context, connector bool) error {
	var done bool
	err := d.Ask(ctx, object{"do": "reset", "connector": connector}, &done)
	if err == nil && !done {
		err = errors.New("blocks are in use")
	}
	return err
}

// settle steps: what the last step has computed is stored with the next.
func (d direct) settle(ctx context.Context) error {
	return d.Ask(ctx, object{"do": "step", "n": 200}, nil)
}

// served is a vllm serve.
type served struct {
	url     string
	process *measure.Process
	cached  map[string]int // tokens of all requests, by source
}

func (s *served) started(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, measure.StartTimeout)
	defer cancel()
	for {
		if _, err := s.call(ctx, http.MethodGet, "/health", nil); err == nil {
			return nil
		}
		if s.process.Over() {
			return s.process.Failed("has ended")
		}
		select {
		case <-ctx.Done():
			return s.process.Failed("does not serve")
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (s *served) call(ctx context.Context, method, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	q, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	q.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.300s", path, r.Status, answer)
	}
	return answer, err
}

func (s *served) generate(ctx context.Context, prompts [][]int, tokens int) (g generated, err error) {
	began := time.Now()
	all, ctx := errgroup.WithContext(ctx)
	for _, prompt := range prompts {
		all.Go(func() error {
			_, err := s.call(ctx, http.MethodPost, "/v1/completions", object{"model": "m", "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": true})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return g, err
	}
	g.Seconds = time.Since(began).Seconds()
	g.Cached, err = s.sources()
	return g, err
}

var source = regexp.MustCompile(`(?m)^vllm:prompt_tokens_cached_by_source_total\{.*source="(\w+)".*\} (\S+)$`)

// sources are the tokens since the last call, by where they came from.
func (s *served) sources() (map[string]int, error) {
	text, err := s.call(context.Background(), http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, err
	}
	since := map[string]int{}
	for _, m := range source.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, err
		}
		if d := int(n) - s.cached[m[1]]; d != 0 {
			since[m[1]], s.cached[m[1]] = d, int(n)
		}
	}
	return since, nil
}

func (s *served) forget(ctx context.Context, connector bool) error {
	_, err := s.call(ctx, http.MethodPost, "/reset_prefix_cache?reset_external="+strconv.FormatBool(connector), nil)
	return err
}

// settle asks for little: what was computed is stored with the next request.
func (s *served) settle(ctx context.Context) error {
	for range 20 {
		if _, err := s.generate(ctx, [][]int{{4, 5, 6}}, 1); err != nil {
			return err
		}
	}
	return nil
}
