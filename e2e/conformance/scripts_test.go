package conformance_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/key"
)

// scripts are those that every client must pass.
func scripts(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(daemon.Root(), "testdata", "conformance", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return paths
}

// TestConformance runs the scripts that every client must pass;
// the Python client runs the same.
func TestConformance(t *testing.T) {
	for _, path := range scripts(t) {
		t.Run(filepath.Base(path), func(t *testing.T) { conform(t, daemon.Start(t).Socket, path) })
	}
}

// conform runs a script with the Go client against a daemon that holds nothing.
func conform(t *testing.T, socket, path string) {
	t.Helper()
	c, err := client.Dial(t.Context(), socket, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := script{ctx: t.Context(), c: c, spaces: map[string]scriptSpace{}, prompts: map[string]client.Prompt{}}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		step, want, _ := strings.Cut(line, " = ")
		if step = strings.TrimSpace(step); step == "" {
			continue
		}
		got, err := s.run(strings.Fields(step))
		if err != nil || got != strings.TrimSpace(want) {
			t.Errorf("line %d: %s\n got %q, %v\nwant %q", n, step, got, err, strings.TrimSpace(want))
		}
	}
}

// script is one run of a conformance script.
type script struct {
	ctx     context.Context
	c       *client.Client
	spaces  map[string]scriptSpace
	prompts map[string]client.Prompt
}

type scriptSpace struct {
	*client.Space
	tokens uint32 // of each chunk
}

// run does one step: words in, words out.
func (s *script) run(step []string) (string, error) {
	a := append(step[1:], "", "", "", "")
	p := s.prompts[a[0]]
	switch step[0] {
	case "space":
		return "", s.space(a[0], a[1], number(a[2]))
	case "tokens":
		ids := make([]uint32, number(a[3]))
		for i := range ids {
			ids[i] = uint32(number(a[2]) + i)
		}
		p = client.Tokens(ids)
		p.Space = s.spaces[a[1]].Space
		s.prompts[a[0]] = p
	case "hashes":
		s.prompts[a[0]] = s.hashes(a[1], byte(number(a[2])), 0, number(a[3]))
	case "alone":
		p = s.hashes(a[1], byte(number(a[2])), number(a[3]), number(a[4]))
		p.Alone = true
		s.prompts[a[0]] = p
	case "skip":
		p = s.prompts[a[1]]
		p.SkipChunks = number(a[2])
		s.prompts[a[0]] = p
	case "kept":
		s.prompts[a[0]] = s.prompts[a[1]] // sent with each call here
	case "store", "abandon":
		return s.store(p, number(a[1]), a[2], 0, step[0] == "store")
	case "aged":
		return s.store(p, number(a[1]), a[2], time.Duration(number(a[3]))*time.Second, true)
	case "over":
		return "", s.over(p)
	case "put":
		results, err := s.c.Put(s.ctx, p, number(a[1]), payloads(p, number(a[1]), a[2]))
		return resultNames(results), err
	case "lookup":
		m, err := s.c.Lookup(s.ctx, p, 0)
		return fmt.Sprint(m.Total.Chunks, m.Total.Tokens), err
	case "why":
		return s.why(p)
	case "read":
		return s.read(p, number(a[1]), a[2])
	case "get":
		return "", s.get(p, number(a[1]), a[2])
	case "sum":
		return s.sum(p, number(a[1]))
	case "pin":
		n, err := s.c.Pin(s.ctx, p, a[1], 0)
		return fmt.Sprint(n.Chunks, n.Tokens), err
	case "unpin":
		n, err := s.c.Unpin(s.ctx, a[0])
		return fmt.Sprint(n), err
	case "delete":
		n, err := s.c.DeletePrompt(s.ctx, p)
		return fmt.Sprint(n), err
	case "flush":
		_, err := s.c.Flush(s.ctx, false)
		return "", err
	case "ping":
		return "", s.c.Ping(s.ctx)
	case "refused":
		got, err := s.run(step[1:])
		if e := (*client.Error)(nil); errors.As(err, &e) {
			return e.Code.String() + " " + e.Retry.String(), nil
		}
		return "", fmt.Errorf("it was not refused: %q, %w", got, err)
	default:
		return "", fmt.Errorf("no step is called %q", step[0])
	}
	return "", nil
}

func (s *script) space(name, method string, tokens int) error {
	opened, err := s.c.OpenSpace(s.ctx, key.Space{
		Model: "conformance", World: 1, DType: "u8", ChunkTokens: tokens, Method: key.Method(method),
	})
	s.spaces[name] = scriptSpace{opened, uint32(tokens)}
	return err
}

func (s *script) hashes(space string, seed byte, first, n int) client.Prompt {
	raw, lengths := make([]byte, 16*n), make([]uint32, n)
	for i := range n {
		raw[16*i], raw[16*i+1], lengths[i] = seed, byte(first+i+1), s.spaces[space].tokens
	}
	p := client.Hashes(16, raw, lengths)
	p.Space, p.SaveUnfull = s.spaces[space].Space, true
	return p
}

// over returns when nothing of a prompt is found any more.
func (s *script) over(p client.Prompt) error {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		m, err := s.c.Lookup(s.ctx, p, 0)
		switch {
		case err != nil || m.Total.Chunks == 0:
			return err
		case time.Now().After(end):
			return fmt.Errorf("%d chunks are still found", m.Total.Chunks)
		}
	}
}

func (s *script) store(p client.Prompt, first int, sizes string, maxAge time.Duration, commit bool) (string, error) {
	o := client.ReserveOptions{First: first, Sizes: numbers(sizes), Count: len(numbers(sizes)), MaxAge: maxAge}
	fill, err := s.c.Reserve(s.ctx, p, o)
	if err != nil {
		return "", err
	}
	var grants []string
	for i, payload := range payloads(p, first, sizes)[:fill.Len()] {
		grants = append(grants, fill.Status(i).String())
		copy(fill.Bytes(i), payload)
	}
	if !commit {
		return strings.Join(grants, ","), fill.Abort(s.ctx)
	}
	results, err := fill.Commit(s.ctx)
	return strings.Join(grants, ",") + " " + resultNames(results), err
}

// why is what a lookup and a prefetch are told of the chunk that a prompt lacks.
func (s *script) why(p client.Prompt) (string, error) {
	m, err := s.c.LookupWith(s.ctx, p, client.LookupOptions{Why: true})
	if err != nil {
		return "", err
	}
	job, err := s.c.Prefetch(s.ctx, p, client.PrefetchOptions{Why: true})
	if err != nil {
		return "", err
	}
	word, loaded := "ok", job.Match().Missing
	if m.Missing != nil {
		word = m.Missing.Code.String()
	}
	if (m.Missing == nil) != (loaded == nil) || loaded != nil && (loaded.Code != m.Missing.Code || loaded.Tier != m.Missing.Tier) {
		word += fmt.Sprintf(", a prefetch is told %+v", loaded)
	}
	return word, job.Release(s.ctx)
}

func (s *script) read(p client.Prompt, first int, sizes string) (string, error) {
	job, err := s.c.Prefetch(s.ctx, p, client.PrefetchOptions{})
	if err != nil {
		return "", err
	}
	state, err := job.Wait(s.ctx, client.All)
	if err != nil {
		return "", err
	}
	want := payloads(p, first, sizes)
	if int(state.Ready.Chunks) != first+len(want) {
		return "", fmt.Errorf("%d chunks are ready", state.Ready.Chunks)
	}
	for i, w := range want {
		if got, err := job.Chunk(s.ctx, first+i); err != nil || !bytes.Equal(got, w) {
			return "", fmt.Errorf("chunk %d: other bytes, %w", first+i, err)
		}
	}
	return "ok", job.Release(s.ctx)
}

func (s *script) get(p client.Prompt, first int, sizes string) error {
	got, err := s.c.Get(s.ctx, p, client.GetOptions{First: first})
	if err != nil {
		return err
	}
	want := payloads(p, first, sizes)
	if len(got) != len(want) {
		return fmt.Errorf("%d chunks came", len(got))
	}
	for i := range want {
		if !bytes.Equal(got[i].Bytes, want[i]) {
			return fmt.Errorf("chunk %d: other bytes", first+i)
		}
	}
	return nil
}

func (s *script) sum(p client.Prompt, i int) (string, error) {
	job, err := s.c.Prefetch(s.ctx, p, client.PrefetchOptions{})
	if err != nil {
		return "", err
	}
	if _, err := job.Wait(s.ctx, client.All); err != nil {
		return "", err
	}
	sum, err := job.Sum(i)
	return fmt.Sprintf("%016x", sum), errors.Join(err, job.Release(s.ctx))
}

// payloads are what the script says its chunks hold.
func payloads(p client.Prompt, first int, sizes string) (out [][]byte) {
	for n, size := range numbers(sizes) {
		payload, at := make([]byte, size), p.SkipChunks+first+n
		if p.Alone {
			at = 0
		}
		for k := range payload {
			payload[k] = byte((31*at + 7*k) % 251)
		}
		out = append(out, payload)
	}
	return out
}

func resultNames(results []client.Stored) string {
	var names []string
	for _, r := range results {
		names = append(names, r.Code.String())
	}
	return strings.Join(names, ",")
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // a mistake in the script
	}
	return n
}

func numbers(text string) (out []uint32) {
	for _, n := range strings.Split(text, ",") {
		if n != "-" {
			out = append(out, uint32(number(n)))
		}
	}
	return out
}
