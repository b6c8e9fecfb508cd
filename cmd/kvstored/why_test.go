package main

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
)

// TestWhy: the command says why a prompt is missing, by its tokens and by the name of its
// request, and names the error of a wrong question.
func TestWhy(t *testing.T) {
	d := serveHere(t)
	ask := func(args ...string) admin.Missed {
		t.Helper()
		r := read[admin.Why](t, append([]string{"why"}, args...)...)
		if len(r.Prompts) != 1 {
			t.Fatalf("%d prompts", len(r.Prompts))
		}
		return r.Prompts[0]
	}
	if out := must(t, "", "why", "--recent"); !strings.HasPrefix(out, "no prompt that an engine has named") {
		t.Errorf("before an engine came:\n%s", out)
	}
	if m := ask("--text", "a prompt"); m.Reason != "never_stored" || m.Chunks != 1 || m.Chunk != 0 {
		t.Errorf("before it is stored: %+v", m)
	}
	must(t, "payload", "put", "--text", "a prompt")
	if m := ask("--text", "a prompt"); m.Reason != "nothing" || m.Chunk != 1 || m.Tokens != 8 || m.Got != 8 {
		t.Errorf("stored: %+v", m)
	}
	m := ask("--text", "a prompt", "--dtype", "fp8")
	if m.Reason != "other_space" || len(m.Nearest) != 1 || len(m.Nearest[0].Differs) != 1 || m.Nearest[0].Differs[0] != (admin.Differs{Field: "dtype", Here: "fp8", There: "bytes"}) {
		t.Errorf("with another dtype: %+v", m)
	}
	if out := must(t, "", "why", "--text", "a prompt", "--dtype", "fp8"); !strings.Contains(out, `dtype is "bytes" there and "fp8" here`) {
		t.Errorf("with another dtype:\n%s", out)
	}
	must(t, "", "forget", "--yes", "--text", "a prompt")
	if m := ask("--text", "a prompt"); m.Reason != "deleted" || m.Tier != "cpu" || m.Left == nil {
		t.Errorf("deleted: %+v", m)
	}
	space := key.Space{Model: "m", DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256}
	c, err := client.Dial(t.Context(), d.socket, client.Options{Space: &space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	j, err := c.Prefetch(t.Context(), client.Tokens([]uint32{1, 2, 3, 4, 5, 6, 7, 8}), client.PrefetchOptions{LookupID: "request-7"})
	if err != nil {
		t.Fatal(err)
	}
	if m := ask("--lookup-id", "request-7"); m.Reason != "never_stored" || m.Tokens != 8 || m.Got != 0 || m.Chunks != 2 || m.Model != "m" {
		t.Errorf("by its name: %+v", m)
	}
	if err := j.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := c.Space().ID()
	if m := ask("--space", hex.EncodeToString(id[:]), "--tokens", "1,2,3,4"); m.Reason != "never_stored" || m.Chunks != 1 {
		t.Errorf("by its space: %+v", m)
	}
	if _, err := c.Put(t.Context(), client.Tokens([]uint32{1, 2, 3, 4}), 0, [][]byte{[]byte("payload")}); err != nil {
		t.Fatal(err)
	}
	if m := ask("--space", hex.EncodeToString(id[:]), "--tokens", "1,2,3,4,5,6"); m.Reason != "never_stored" || m.Chunks != 2 || m.Chunk != 1 || m.Tokens != 6 || m.Got != 4 || !m.Partial {
		t.Errorf("with a chunk that is not whole: %+v", m)
	}
	for _, more := range [][]string{{"--space", hex.EncodeToString(id[:])}, {"--model", "m", "--dtype", "b", "--chunk-tokens", "4"}} {
		if out := must(t, "", append([]string{"why", "--tokens", "1,2,3,4,5,6"}, more...)...); !strings.Contains(out, "4 of 6 tokens, up to chunk 1 of 2") || !strings.Contains(out, "not a whole one") {
			t.Errorf("with a chunk that is not whole:\n%s", out)
		}
		if out := must(t, "", append([]string{"why", "--tokens", "1,2,3,4,5,6,7,8"}, more...)...); strings.Contains(out, "not a whole one") {
			t.Errorf("with whole chunks:\n%s", out)
		}
		long := write(t, "1,2,3,4"+strings.Repeat(",100000", 30_000)) // more than 64 KiB
		if m := ask(append(more, "--tokens-file", long)...); m.Chunks != 7501 || m.Chunk != 1 || m.Partial {
			t.Errorf("a long prompt: %+v", m)
		}
	}
	salted, err := c.OpenSpace(t.Context(), key.Space{Model: "m", DType: "b", World: 1, ChunkTokens: 4, Method: key.SHA256, Salt: "tenant"})
	if err != nil {
		t.Fatal(err)
	}
	hidden := salted.ID()
	fails(t, exitFailure, "the salt is known by its digest only", "why", "--tokens", "1,2,3,4", "--space", hex.EncodeToString(hidden[:]))
	if m := ask("--recent"); m.LookupID != "request-7" || m.Tokens != 8 || m.Got != 0 || m.Reason != "never_stored" {
		t.Errorf("the last ones: %+v", m)
	}
	if out := must(t, "", "why", "--recent"); !strings.Contains(out, "\nrequest-7 ") || !strings.Contains(out, "\n  this text is new: it was never stored\n") {
		t.Errorf("the last ones:\n%s", out)
	}
	fails(t, exitUsage, "do not go together", "why", "--recent", "--lookup-id", "y")
	fails(t, exitUsage, "give one of --tokens, ", "why")
	fails(t, exitUsage, "do not go together", "why", "--text", "x", "--lookup-id", "y")
	fails(t, exitUsage, "do not go together", "why", "--text", "x", "--space", hex.EncodeToString(id[:]), "--model", "m")
	fails(t, exitFailure, `"zz" is no space`, "why", "--text", "x", "--space", "zz")
	fails(t, exitFailure, "nothing is remembered", "why", "--lookup-id", "request-8")
	fails(t, exitUsage, "is empty", "why", "--tokens", ",")
	fails(t, exitFailure, "was not opened", "why", "--tokens", "1", "--space", strings.Repeat("0", 32))
}
