package commands_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// conversations is a trace of people who come back with longer prompts, more than DRAM has
// room for.
func conversations(requests int) string {
	var b strings.Builder
	rng := rand.New(rand.NewPCG(24, 1))
	turns := make([]int, 40)
	for i := range requests {
		who := rng.IntN(len(turns))
		turns[who]++
		ids := []int{0, 1}
		for n := range min(2*turns[who], 16) {
			ids = append(ids, 100*(who+1)+n)
		}
		list, _ := json.Marshal(ids) // of numbers
		fmt.Fprintf(&b, `{"timestamp": %d, "input_length": %d, "output_length": 1, "hash_ids": %s}`+"\n", i, 512*len(ids)-rng.IntN(500), list)
	}
	return b.String()
}

// TestCounted: what the daemon counts of a replay over a disk is what its clients count, to
// the token: in its statistics, by model, and in its metrics; hits and misses add up to all
// that the clients asked for. The lab estimates what was hit within 5 points.
func TestCounted(t *testing.T) {
	d := start(t, func(c *config.Config) { c.Admin.Listen, c.CPU.Capacity = "127.0.0.1:0", 16<<20 })
	r := daemon.MustJSON[played](t, "lab", "replay", "--trace", write(t, conversations(200)), "--save-unfull", "--payload-bytes", "64KiB", "--concurrency", "3")
	if !r.Complete || !r.Agrees {
		t.Errorf("%+v", r)
	}
	v := daemon.MustJSON[struct {
		Server struct {
			Asked  int64            `json:"asked_tokens"`
			Hit    map[string]int64 `json:"hit_tokens"`
			Missed struct {
				Missed []struct {
					Reason string `json:"reason"`
					Tokens int64  `json:"tokens"`
				} `json:"missed"`
			} `json:"missed"`
			Models []struct {
				Asked  int64   `json:"asked_tokens"`
				Hit    []int64 `json:"hit_tokens"`
				Stored int64   `json:"stored_bytes"`
			} `json:"models"`
		} `json:"server"`
	}](t, "stats")
	s := &v.Server
	hit, missed, never := int64(0), int64(0), int64(0)
	for name, n := range s.Hit {
		if hit += n; n != r.ByTier[name] {
			t.Errorf("%s: %d tokens hit, the clients counted %d", name, n, r.ByTier[name])
		}
	}
	for _, m := range s.Missed.Missed {
		if missed += m.Tokens; m.Reason == "never_stored" {
			never += m.Tokens
		}
	}
	if s.Asked != r.PromptTokens || hit != r.HitTokens || s.Asked != hit+missed || r.ByTier["disk"] == 0 || never == 0 {
		t.Errorf("%d asked for, %d hit, %d missed; the clients asked for %d and hit %d", s.Asked, hit, missed, r.PromptTokens, r.HitTokens)
	}
	w := daemon.MustJSON[struct {
		Measured       float64
		MeasuredTokens int64 `json:"measured_tokens"`
	}](t, "lab", "whatif") // which fails where its estimate is not what was measured
	if want := float64(hit) / float64(s.Asked); w.MeasuredTokens != s.Asked || w.Measured != want {
		t.Errorf("measured %v of %d tokens, want %v of %d", w.Measured, w.MeasuredTokens, want, s.Asked)
	}
	if m := s.Models; len(m) != 1 || m[0].Asked != s.Asked || m[0].Hit[0]+m[0].Hit[1]+m[0].Hit[2] != hit || m[0].Stored != r.Written {
		t.Errorf("by model %+v", m)
	}
	resp, err := http.Get("http://" + d.Find(`INF serving .*\badmin=(\S+)`) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	page, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int64{
		"asked_tokens_total": s.Asked, `hit_tokens_total{tier="disk"}`: s.Hit["disk"],
		`missed_tokens_total{reason="never_stored",tier="none"}`: never, "stored_bytes_total": r.Written,
	} {
		if line := fmt.Sprintf("\nkvstored_%s %v\n", name, float64(n)); !strings.Contains(string(page), line) {
			t.Errorf("no line %q", line)
		}
	}
}

// TestReplayGroups: a daemon hits of generated groups what the simulator says. Played again,
// when all is stored, it loads what the hits need and no more: nothing is evicted meanwhile
// but for a load, so that both numbers are exact.
func TestReplayGroups(t *testing.T) {
	start(t, func(c *config.Config) { c.CPU.Capacity = 16 << 20 })
	trace := filepath.Join(daemon.Root(), "lab", "simulate", "testdata", "separating.jsonl")
	live := []string{"lab", "replay", "--groups", "gemma-3-27b", "--payload-bytes", "64KiB", "--trace", trace}
	play := func() played {
		t.Helper()
		r := daemon.MustJSON[played](t, append(live, "--wait-complete", "--per-request")...)
		each := int64(0)
		for _, n := range r.PerRequest {
			each += n
		}
		if len(r.PerRequest) != r.Requests || each != r.HitTokens {
			t.Errorf("%d tokens of %d requests; want %d of %d", each, len(r.PerRequest), r.HitTokens, r.Requests)
		}
		if !r.Complete || r.Mismatches != 0 || !r.Agrees || r.Needed == 0 || r.NeededBelow == 0 {
			t.Errorf("%+v", r)
		}
		return r
	}
	first := play()
	rows := daemon.MustJSON[[]played](t, "lab", "replay", "--simulate", "--groups", "gemma-3-27b", "--policy", "infinite", "--trace", trace, "--capacity-blocks", "9")
	if want := rows[3].HitTokens; first.HitTokens != want {
		t.Errorf("%d tokens hit; simulated are %d, where nothing goes", first.HitTokens, want)
	}
	daemon.Must(t, "", "flush")
	again := play()
	if again.Stored != 0 || again.Daemon.Loaded != again.NeededBelow {
		t.Errorf("%d chunks stored, and %d bytes came up; want none, and the %d that were needed", again.Stored, again.Daemon.Loaded, again.NeededBelow)
	}
	if out := daemon.Must(t, "", live...); !strings.Contains(out, "needed") {
		t.Errorf("%s", out)
	}
}
