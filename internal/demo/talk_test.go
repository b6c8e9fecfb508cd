package demo

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
)

// talkRig is an engine and a daemon that remember their calls.
type talkRig struct {
	asked  []Question
	stored int    // prompts
	starts int    // of the daemon
	disk   int64  // bytes loaded since the last start
	cold   bool   // the daemon was started since the last load
	wrong  int    // the answer, from 1, that is unlike the others
	fails  string // what does not work
}

var errRig = errors.New("it does not")

func (r *talkRig) Start(context.Context) (Found, error) {
	r.starts, r.disk, r.cold = r.starts+1, 0, true
	if r.fails == "start" {
		return Found{}, errRig
	}
	return Found{}, nil
}

func (r *talkRig) Stop(context.Context) error {
	if r.fails == "stop" {
		return errRig
	}
	return nil
}

func (r *talkRig) Socket() string { return "" }

func (r *talkRig) FromDisk(context.Context) (int64, error) {
	if r.fails == "stats" {
		return 0, errRig
	}
	return r.disk, nil
}

func (r *talkRig) Ask(ctx context.Context, q Question) (Answer, error) {
	r.asked = append(r.asked, q)
	a := Answer{Tokens: make([]int, q.Reply), Logits: "same", FirstTokenSeconds: 8}
	for i := range a.Tokens {
		a.Tokens[i] = 3 + (len(q.Prompt)+i)%5
	}
	if q.Restore && r.stored > 0 {
		a.Restored, a.FirstTokenSeconds = TalkSystemTokens, 1
		if r.cold {
			r.disk, r.cold, a.FirstTokenSeconds = r.disk+100, false, 2
		}
	}
	if q.Store {
		r.stored++
	}
	switch {
	case r.fails == "ask":
		return a, errRig
	case len(r.asked) == r.wrong:
		a.Logits = "others"
	}
	return a, nil
}

func (r *talkRig) options(users, turns int) TalkOptions {
	return TalkOptions{Users: users, Turns: turns, Seed: 1, Vocabulary: 512, Daemon: r, Engine: r, Answered: func(int, int, Way) {}}
}

// TestTalk: each prompt is answered computed, from disk after a restart, then from
// DRAM; the next one of its user goes on from it and the reply.
func TestTalk(t *testing.T) {
	rig := new(talkRig)
	var ways []Way
	o := rig.options(2, 3)
	o.Answered = func(_, _ int, way Way) { ways = append(ways, way) }
	r, err := Talk(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := append([]Way{Computed, FromDRAM}, slices.Repeat(Ways[:], 5)...) // at the first prompt nothing is stored
	if !slices.Equal(ways, want) || rig.starts != 5 || r.Restarts != 5 || r.Compared != 11 || !r.OK() {
		t.Errorf("%v; %d restarts, %+v", ways, rig.starts, r)
	}
	for i, q := range rig.asked {
		if q.Restore != (ways[i] != Computed) || q.Store != (ways[i] == FromDRAM) || q.Restarted != (ways[i] == FromDisk) || len(q.Prompt) > ContextTokens-q.Reply {
			t.Errorf("%s: restore %v, store %v, %d tokens", ways[i], q.Restore, q.Store, len(q.Prompt))
		}
	}
	first, second, again := rig.asked[0].Prompt, rig.asked[2].Prompt, rig.asked[5].Prompt
	if !slices.Equal(first[:TalkSystemTokens], second[:TalkSystemTokens]) || slices.Equal(first[TalkSystemTokens:][:9], second[TalkSystemTokens:][:9]) {
		t.Error("people do not share the system prompt alone")
	}
	reply, _ := new(talkRig).Ask(t.Context(), Question{Prompt: first, Reply: replyTokens})
	if want := slices.Concat(first, reply.Tokens); !slices.Equal(again[:len(want)], want) {
		t.Error("the second prompt does not go on from the first and its reply")
	}
	if r.DiskBytes != (ByWay[int64]{FromDisk: 500}) || r.FollowUp.Seconds != (ByWay[float64]{8, 2, 1}) || r.FollowUp.Sooner != (ByWay[float64]{1, 4, 8}) {
		t.Errorf("from disk %v, %+v", r.DiskBytes, r.FollowUp)
	}
	if p := r.Prompts[0]; p.Seconds[FromDisk] != 0 || p.Seconds[FromDRAM] != 0 || r.FollowUp.Prompts != 4 || r.ByTurn[0].Prompts != 2 {
		t.Errorf("the first prompt %+v, %+v", p, r.ByTurn)
	}
}

// TestTalkDiffers: an answer with other logits is counted, in whichever way.
func TestTalkDiffers(t *testing.T) {
	for wrong, different := range map[int]int{2: 1, 4: 1, 5: 1, 3: 2} { // the third is computed: two are unlike it
		rig := &talkRig{wrong: wrong}
		if r, err := Talk(t.Context(), rig.options(2, 2)); err != nil || r.Different != different || r.OK() {
			t.Errorf("answer %d: %+v, %v", wrong, r, err)
		}
	}
}

// TestTalkFails: what fails is named with the prompt that it failed for.
func TestTalkFails(t *testing.T) {
	for _, fails := range []string{"start", "stop", "stats", "ask"} {
		rig := &talkRig{fails: fails}
		_, err := Talk(t.Context(), rig.options(2, 1))
		if !errors.Is(err, errRig) || !strings.HasPrefix(err.Error(), "user ") {
			t.Errorf("%s: %v", fails, err)
		}
	}
	o := new(talkRig).options(1, 1)
	o.Vocabulary = firstToken
	if _, err := Talk(t.Context(), o); !errors.Is(err, errVocabulary) {
		t.Errorf("without a vocabulary: %v", err)
	}
}

// TestTalkFits: the longest talk ends before the context does.
func TestTalkFits(t *testing.T) {
	if most := TalkSystemTokens + MostTurns*(maxAsked+replyTokens); most > ContextTokens {
		t.Errorf("%d tokens in a context of %d", most, ContextTokens)
	}
}

// TestTalkResult: of one turn that one counts, and JSON names the ways.
func TestTalkResult(t *testing.T) {
	r, err := Talk(t.Context(), new(talkRig).options(3, 1))
	if err != nil || r.FollowUp.Prompts != 3 || r.FollowUp.Seconds[FromDRAM] != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	text, err := json.Marshal(r.FollowUp.Seconds)
	if want := `{"computed":8,"from_dram":1,"from_disk":2}`; err != nil || string(text) != want {
		t.Errorf("%s, %v; want %s", text, err, want)
	}
	for values, want := range map[[4]float64]float64{{1, 2, 3, 4}: 2.5, {4, 1, 2, 3}: 2.5} {
		if got := median(values[:]); got != want {
			t.Errorf("the median of %v is %v", values, got)
		}
	}
}
