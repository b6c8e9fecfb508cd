package sglang_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// each runs a long test with each class.
func each(t *testing.T, test func(t *testing.T, options func(more object) object)) {
	t.Helper()
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	sglang.Python(t)
	for name, options := range classes {
		t.Run(name, func(t *testing.T) { test(t, options) })
	}
}

// TestApart: engines that compute other bytes for the same tokens find nothing of each
// other, though they share a daemon, and neither do requests with other salts or extra keys.
func TestApart(t *testing.T) {
	each(t, func(t *testing.T, options func(more object) object) {
		d := daemon.Start(t, roomy)
		all := prompts()[:1]
		for _, tt := range []struct {
			name    string
			options object
		}{
			{"as it is", nil},
			{"other weights", object{"model": "other"}},
			{"element type", object{"dtype": "bfloat16"}},
			{"rope", object{"json_model_override_args": `{"rope_theta": 1000.0, "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0}}`}},
			{"page", object{"page_size": 32}},
			{"element type of KV", object{"kv_cache_dtype": "bfloat16"}},
			{"as it was", nil},
		} {
			e := start(t, d.Socket, options(tt.options))
			want := []int{0}
			if tt.name == "as it was" {
				want = []int{992}
			}
			g := e.generate(all, nil)
			if !slices.Equal(g.Tokens, want) {
				t.Errorf("%s: %d tokens were there, want %d", tt.name, g.Tokens, want)
			}
			if tt.name == "as it is" {
				stored(t, d, pages(all))
				e.flush()
				for _, request := range []struct {
					key, value string
					want       int
				}{
					{"cache_salt", "a", 0}, {"cache_salt", "b", 0}, {"extra_key", "a", 0}, {"extra_key", "b", 0},
					{"cache_salt", "a", 992}, {"extra_key", "a", 992}, {"extra_key", "", 992},
				} {
					before := d.Stats().Store.Chunks
					got := e.generate(all, object{request.key: request.value})
					what := request.key + " " + request.value
					drive.Near(t, what, got.Answers, g.Answers, 1e-5)
					if got.Tokens[0] != request.want {
						t.Errorf("%s: %d tokens were there, want %d", what, got.Tokens, request.want)
					}
					if request.want == 0 {
						stored(t, d, before+pages(all))
					}
					e.flush()
				}
			}
			e.Stop()
		}
	})
}

// TestAdapters: a prompt finds what was computed with its own adapter, and nothing else.
func TestAdapters(t *testing.T) {
	each(t, func(t *testing.T, options func(more object) object) {
		d := daemon.Start(t, roomy)
		all, names := prompts()[:1], []string{"", "adapter-1", "adapter-2"}
		paths := object{}
		for _, name := range names[1:] {
			paths[name] = sglang.Model(t, name)
		}
		e := start(t, d.Socket, options(object{"enable_lora": true, "lora_paths": paths, "lora_backend": "torch_native", "max_loras_per_batch": 3}))
		generate := func(name string, want int) []drive.Answer {
			more := object{}
			if name != "" {
				more["lora_path"] = name
			}
			g := e.generate(all, more)
			if g.Tokens[0] != want {
				t.Errorf("%q: %d tokens were there, want %d", name, g.Tokens, want)
			}
			return g.Answers
		}
		own := map[string][]drive.Answer{}
		for i, name := range names {
			generate(name, 0)
			own[name] = generate(name, 992)
			stored(t, d, int64(i+1)*pages(all))
		}
		for _, name := range names[1:] {
			if slices.Equal(own[name][0].Logprobs, own[""][0].Logprobs) {
				t.Errorf("%s changes nothing", name)
			}
		}
		e.flush()
		for _, name := range names {
			drive.Equal(t, name, generate(name, 992), own[name], true)
		}
	})
}
