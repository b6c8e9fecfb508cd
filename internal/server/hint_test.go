package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// hint says something of a prompt.
func (r *rig) hint(c *client.Client, ch *key.Chain, configs map[string]string) client.Hinted {
	r.t.Helper()
	p := client.Chain(ch)
	h, err := c.Hint(r.t.Context(), client.Subject{Prompt: &p}, configs)
	r.must(err)
	return h
}

// inDRAM is how many chunks of a prompt lead in being there.
func (r *rig) inDRAM(c *key.Chain) int {
	r.t.Helper()
	m, err := r.tiers.Lookups.Match(r.t.Context(), c, tier.Of(tier.CPU))
	r.must(err)
	return m.Chunks
}

// crowd stores as many chunks of other prompts as DRAM has room for.
func (r *rig) crowd(seed uint64) {
	r.t.Helper()
	for i := range uint64(r.arena.Stats().CapacityBytes) / size {
		r.store(chain(seed+i, 1), 0, 1)
	}
}

// TestRetain: what is retained outlasts what is not, until it is released; and where
// all of DRAM is retained everything can still be stored.
func TestRetain(t *testing.T) {
	for _, name := range []string{"lru", "tenure", "s3fifo"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{lone: true, capacity: 512 * kib})
				r.must(r.tiers.Operator.SetPolicy(tier.CPU, name))
				c := r.dial(client.Options{})
				kept := chain(1, 6)
				r.store(kept, 0, 6)
				got := r.hint(c, kept, map[string]string{"retain_priority": "80", "retain_seconds": "600", "retain_end": fmt.Sprint(4 * tokens)})
				if got.Retained.Chunks != 4 || got.Retained.Tokens != 4*tokens || len(got.Faults) > 0 {
					t.Fatalf("%+v", got)
				}
				r.crowd(1000)
				if n := r.inDRAM(kept); n != 4 {
					t.Errorf("%d chunks are left, want 4", n)
				}
				r.ask(c, kept, nil)
				if s := r.server.Stats().Retained; s.Chunks != 4 || s.Bytes != 4*size || s.Given != 4 {
					t.Errorf("%+v", s)
				}
				for i := range uint64(40) { // far more than there is room for
					p := chain(5000+i, 2)
					r.store(p, 0, 2)
					r.hint(c, p, map[string]string{"retain_priority": "100"})
					if n := r.inDRAM(p); n != 2 {
						t.Fatalf("%d chunks of prompt %d were stored where all is retained", n, i)
					}
				}
			})
		})
	}
}

// TestRetainEndsAtDone: done ends what its session retains, and its own tail goes first
// under every policy; what others share stays.
func TestRetainEndsAtDone(t *testing.T) {
	for _, name := range []string{"lru", "tenure"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, options{lone: true, capacity: 512 * kib})
				r.must(r.tiers.Operator.SetPolicy(tier.CPU, name))
				c := r.dial(client.Options{})
				for i := range uint64(16) { // older, and not the first to go
					r.store(chain(50+i, 1), 0, 1)
				}
				shared, over := chain(1, 2), chain(1, 5)
				r.store(over, 0, 5)
				other := chain(1, 3)
				other.Hashes = slices.Clone(other.Hashes)
				other.Hashes[2] = key.Hash{1, 2, 3}
				r.store(other, 2, 3)
				session := map[string]string{"session": "s", "retain_priority": "90"}
				r.hint(c, over, session)
				open, err := c.OpenSpace(t.Context(), space)
				r.must(err)
				if h, err := c.Hint(t.Context(), client.Subject{Space: open}, map[string]string{"session": "s", "turn_over": "done"}); err != nil || len(h.Faults) > 0 {
					t.Fatalf("%+v, %v", h, err)
				}
				if n := r.server.Stats().Retained.Chunks; n != 0 {
					t.Errorf("%d chunks are retained", n)
				}
				for i := uint64(0); i < 64 && r.inDRAM(over) > 2; i++ {
					r.store(chain(100+i, 1), 0, 1)
				}
				if n := r.inDRAM(over); n != 2 {
					t.Errorf("%d chunks of what is over are left, want the 2 that are shared", n)
				}
				if n := r.inDRAM(shared); n != 2 {
					t.Errorf("%d of the shared chunks are left", n)
				}
				if _, err := c.Hint(t.Context(), client.Subject{Space: open}, map[string]string{"session": "nobody"}); !errors.Is(err, client.ErrNotFound) {
					t.Errorf("an unknown session: %v", err)
				}
			})
		})
	}
}

// TestRetainEndsWithDaemon: a request to retain a lot does not keep the daemon from ending.
func TestRetainEndsWithDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := new(rig)
		r = newRig(t, options{lone: true, Options: server.Options{Asked: func(*key.Chain) { r.cancel() }}})
		p := chain(1, 4)
		r.store(p, 0, 4)
		c := r.greet(0)
		c.send(wire.OpPrefetch, &wire.PrefetchRequest{Chain: c.chain(p), Shared: wire.Shared{Configs: wire.Pairs(nil).Add("retain_priority", "80")}})
		c.ended()
		if r.stop(); r.server.Stats().Retained.Chunks != 0 {
			t.Error("chunks are retained while the daemon ends")
		}
	})
}

// TestFaults: what does not count comes back, each with its reason; all else counts.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true})
		c := r.dial(client.Options{})
		p := chain(1, 4)
		r.store(p, 0, 4)
		type action map[string]any
		keep := func(directives ...any) action {
			return action{"action_id": fmt.Sprint(directives...), "action_type": "kv.retain", "action_version": "1.0", "payload": action{"directives": directives}}
		}
		of := func(from, to, priority int, seconds float64) action {
			return action{"start": from, "end": to, "priority": priority, "duration": seconds}
		}
		envelope := func(actions ...action) string {
			text, err := json.Marshal(map[string]any{"protocol_version": "0.1", "message_id": "m", "actions": actions})
			r.must(err)
			return string(text)
		}
		many := make([]action, 17)
		for i := range many {
			many[i] = keep(of(0, tokens, 50, 10))
		}
		for name, x := range map[string]struct {
			configs  map[string]string
			retained int
			want     []string // code, and some of the text
		}{
			"all is well": {map[string]string{"kv_hints": envelope(keep(of(0, 2*tokens, 80, 60), of(2*tokens, 4*tokens, 20, 60)))}, 4, nil},
			"an unknown action": {map[string]string{"kv_hints": envelope(
				action{"action_id": "a", "action_type": "kv.teleport", "action_version": "1.0"}, keep(of(0, tokens, 80, 60)),
				action{"action_type": "vllm.set_priority", "action_version": "1.0", "payload": action{"x": 1}},
			)}, 1, []string{"unsupported 0 a: the daemon knows no action"}},
			"another version":        {map[string]string{"kv_hints": envelope(action{"action_id": "a", "action_type": "kv.retain", "action_version": "2.0"})}, 0, []string{"unsupported 0 a: kv.retain has the version"}},
			"outside the prompt":     {map[string]string{"kv_hints": envelope(keep(of(0, 100*tokens, 80, 60)), keep(of(0, tokens, 70, 60)))}, 1, []string{"too_large 0 "}},
			"all priorities are one": {map[string]string{"kv_hints": envelope(keep(of(0, tokens, 20, 60), of(tokens, 2*tokens, 80, 60)))}, 2, nil},
			"too long":               {map[string]string{"kv_hints": envelope(keep(of(0, tokens, 20, 31*24*3600)))}, 0, []string{"too_large 0 "}},
			"too many":               {map[string]string{"kv_hints": envelope(many...)}, 16, []string{"too_large 16 "}},
			"no envelope":            {map[string]string{"kv_hints": "{", "retain_priority": "5"}, 4, []string{"bad_request config kv_hints: no envelope"}},
			"unknown names":          {map[string]string{"retian_priority": "5", "lmcache.tag": "x", "kvstored.what": "y"}, 0, []string{"unsupported config kvstored.what", "unsupported config retian_priority"}},
			"no number":              {map[string]string{"retain_priority": "high"}, 0, []string{"bad_request config retain_priority: \"high\" is no whole number"}},
			"a range of nothing":     {map[string]string{"retain_start": "5"}, 0, []string{"bad_request config retain_start: there is no retain_priority"}},
			"longer than may be":     {map[string]string{"retain_priority": "5", "retain_seconds": "1e9"}, 4, []string{"too_large config retain_seconds"}},
			"an age":                 {map[string]string{"max_age_seconds": "5"}, 0, nil},
			"an age in an envelope":  {map[string]string{"kv_hints": envelope(action{"action_id": "a", "action_type": "kvstored.max_age", "action_version": "1.0", "payload": action{"seconds": 5}})}, 0, nil},
			"a prefill depth":        {map[string]string{"prefill_depth": "8000"}, 0, nil},
			"no prefill depth":       {map[string]string{"prefill_depth": "0"}, 0, []string{"bad_request config prefill_depth: \"0\" is no whole number of tokens from 1 on"}},
			"a negative depth":       {map[string]string{"prefill_depth": "-1"}, 0, []string{"bad_request config prefill_depth"}},
			"a depth in thousands":   {map[string]string{"prefill_depth": "30k"}, 0, []string{"bad_request config prefill_depth"}},
			"a depth beyond all":     {map[string]string{"prefill_depth": "4294967296"}, 0, []string{"bad_request config prefill_depth"}},
			"half a token deep":      {map[string]string{"prefill_depth": "1.5"}, 0, []string{"bad_request config prefill_depth"}},
			"no age":                 {map[string]string{"max_age_seconds": "0"}, 0, []string{"bad_request config max_age_seconds: \"0\" is less than 1s"}},
			"an age in words":        {map[string]string{"max_age_seconds": "1h"}, 0, []string{"bad_request config max_age_seconds: \"1h\" is no number"}},
			"a negative age":         {map[string]string{"max_age_seconds": "-5"}, 0, []string{"bad_request config max_age_seconds"}},
			"an age beyond all":      {map[string]string{"max_age_seconds": "2592001"}, 0, []string{"too_large config max_age_seconds"}},
			"no age at all":          {map[string]string{"max_age_seconds": "NaN"}, 0, []string{"bad_request config max_age_seconds"}},
			"what is generated only": {map[string]string{"retain_priority": "5", "covers_output": "true", "prompt_tokens": fmt.Sprint(3 * tokens)}, 1, nil},
		} {
			part(t, name, func(t *testing.T) {
				got := r.hint(c, p, x.configs)
				if int(got.Retained.Chunks) != x.retained {
					t.Errorf("%d chunks are retained, want %d", got.Retained.Chunks, x.retained)
				}
				var said []string
				for _, f := range got.Faults {
					at := fmt.Sprint(f.Action)
					if f.Action == client.NoAction {
						at = "config"
					}
					said = append(said, fmt.Sprintf("%v %s %s: %s", wire.Code(f.Code), at, f.Name, f.Text))
				}
				slices.Sort(said)
				for i := range max(len(said), len(x.want)) {
					if i >= len(said) || i >= len(x.want) || !strings.HasPrefix(said[i], x.want[i]) {
						t.Fatalf("said %q, want %q", said, x.want)
					}
				}
				j, err := c.Prefetch(t.Context(), client.Chain(p), client.PrefetchOptions{Configs: x.configs})
				r.must(err)
				if len(j.Faults()) != len(x.want) {
					t.Errorf("a prefetch says %+v", j.Faults())
				}
				r.must(j.Release(t.Context()))
			})
		}
	})
}

// TestRetainBudget: beyond a user's bytes nothing is retained, and the client is told.
func TestRetainBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true, Options: server.Options{Settings: server.Settings{Retain: hint.ClaimLimits{TotalBytes: mib, UserBytes: 3 * size, Duration: time.Hour}}}})
		c := r.dial(client.Options{})
		p := chain(1, 5)
		r.store(p, 0, 5)
		got := r.hint(c, p, map[string]string{"retain_priority": "50"})
		if got.Retained.Chunks != 3 || len(got.Faults) != 1 || wire.Code(got.Faults[0].Code) != wire.CodeOverBudget {
			t.Errorf("%+v", got)
		}
	})
}

// TestRetainOfOutput: a range without an end has what the connection stores behind the
// prompt retained too.
func TestRetainOfOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true})
		c := r.dial(client.Options{})
		p := chain(1, 6)
		r.store(p, 0, 2)
		asked := *p
		asked.Hashes, asked.Tokens = p.Hashes[:2], p.Tokens[:2]
		r.ask(c, &asked, map[string]string{"retain_priority": "50"})
		_, err := c.Put(t.Context(), client.Chain(p), 2, [][]byte{make([]byte, size), make([]byte, size)})
		r.must(err)
		if n := r.server.Stats().Retained.Chunks; n != 4 {
			t.Errorf("%d chunks are retained, want 4", n)
		}
	})
}

// TestPause: a conversation that rests goes from DRAM first, and is back when it is due.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rest = 100 * time.Second
		r := newRig(t, options{capacity: 512 * kib})
		c := r.dial(client.Options{})
		p := chain(1, 4)
		r.store(p, 0, 4)
		r.must(r.tiers.Writers.Flush(t.Context(), false))
		r.hint(c, p, map[string]string{"retain_priority": "90"})
		begun := time.Now()
		if h := r.hint(c, p, map[string]string{"pause_seconds": fmt.Sprint(rest.Seconds())}); len(h.Faults) > 0 {
			t.Fatalf("%+v", h)
		}
		for i := uint64(0); r.inDRAM(p) > 0; i++ {
			if i > 64 {
				t.Fatal("it stays in DRAM")
			}
			r.store(chain(1000+i, 1), 0, 1)
		}
		for r.inDRAM(p) < 4 {
			if time.Since(begun) > rest {
				t.Fatal("it does not come back")
			}
			time.Sleep(time.Second)
		}
		if took := time.Since(begun); took < rest*8/10 {
			t.Errorf("it is back after %v of %v", took, rest)
		}
	})
}
