package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/lab/replay"
)

// conversations is a trace of people who come back with longer prompts, more than the DRAM of
// TestCounted has room for.
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

// TestCounted: what the daemon counts of a replay is what its clients count, to the token: in
// its statistics, and by model; and hits and misses add up to all that the
// clients asked for.
func TestCounted(t *testing.T) {
	t.Run("DRAM alone", func(t *testing.T) {
		counted(t, conversations(200), "cpu", "was evicted", "evicted")
	})
	t.Run("nothing comes again", func(t *testing.T) {
		var trace strings.Builder
		for i := range 120 {
			fmt.Fprintf(&trace, `{"timestamp": %d, "input_length": 1000, "output_length": 1, "hash_ids": [%d, %d]}`+"\n", i, 2*i, 2*i+1)
		}
		counted(t, trace.String(), "", "0 % was hit; 100 % was new text, never stored")
	})
}

// counted plays a trace against a daemon that hits in a tier ("" in none) and misses for the
// reasons named, besides new prompts, as the sentence about misses says.
func counted(t *testing.T, trace, tier, advice string, reasons ...string) {
	socket := serveHere(t)
	code, out, errs := lab(t, "replay", "--trace", write(t, trace), "--json", "--save-unfull", "--payload-bytes", "64KiB", "--concurrency", "3")
	var r replay.Result
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK || !r.Complete || !r.DaemonAgrees() {
		t.Fatalf("exit code %d, %v, %+v, %s", code, err, r, errs)
	}
	c, err := client.Dial(t.Context(), socket, client.Options{Inline: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var v counts
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	s := &v.Server
	hit, missed := uint64(0), missedOf(&v, "")
	for name, n := range s.HitTokens {
		hit += n
		if int64(n) != r.HitTokens[name] {
			t.Errorf("%s: %d tokens hit, the clients counted %d", name, n, r.HitTokens[name])
		}
	}
	if s.AskedTokens != uint64(r.TotalPromptTokens) || hit != uint64(r.TotalHitTokens) || s.AskedTokens != hit+missed {
		t.Errorf("%d asked for, %d hit, %d missed; the clients asked for %d and hit %d", s.AskedTokens, hit, missed, r.TotalPromptTokens, r.TotalHitTokens)
	}
	for _, reason := range append(reasons, "never_stored") {
		if tier != "" && r.HitTokens[tier] == 0 || missedOf(&v, reason) == 0 {
			t.Errorf("too little happened: %v hit, missed %+v", r.HitTokens, s.Missed.Missed)
		}
	}
	if !strings.Contains(v.Advice, advice) {
		t.Errorf("the advice is %q, want %q in it", v.Advice, advice)
	}
	if len(s.Models) != 1 {
		t.Fatalf("models %+v", s.Models)
	}
	m := &s.Models[0]
	if m.AskedTokens != s.AskedTokens || m.HitTokens[0]+m.HitTokens[1]+m.HitTokens[2] != hit || m.StoredBytes != uint64(r.BytesWritten) {
		t.Errorf("by model %+v", m)
	}
}

// counts is the part of a daemon's statistics that is compared.
type counts struct {
	Advice string
	Server struct {
		AskedTokens uint64            `json:"asked_tokens"`
		HitTokens   map[string]uint64 `json:"hit_tokens"`
		Missed      struct {
			Missed []struct {
				Reason string
				Tokens uint64
			}
		}
		Models []struct {
			AskedTokens uint64   `json:"asked_tokens"`
			HitTokens   []uint64 `json:"hit_tokens"`
			StoredBytes uint64   `json:"stored_bytes"`
		}
	}
}

func missedOf(v *counts, reason string) (n uint64) {
	for _, m := range v.Server.Missed.Missed {
		if m.Reason == reason || reason == "" {
			n += m.Tokens
		}
	}
	return n
}
