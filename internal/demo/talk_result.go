package demo

import (
	"encoding/json"
	"slices"

	"github.com/kvstored/kvstored/internal/human"
)

// Way is how the KV of a prompt comes to be in an engine's context.
type Way uint8

// The ways, in the order in which a prompt is answered.
const (
	Computed Way = iota // all of it by the engine
	FromDisk            // what is stored of it, by a daemon that was just restarted
	FromDRAM            // what is stored of it, by a daemon that has it in DRAM
	numWays
)

// Ways are all of them, in order.
var Ways = [numWays]Way{Computed, FromDisk, FromDRAM}

func (w Way) String() string {
	return [numWays]string{"computed", "from disk", "from DRAM"}[w]
}

// ByWay is one value for each way.
type ByWay[T any] [numWays]T

// MarshalJSON names the ways.
func (b ByWay[T]) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Computed T `json:"computed"`
		FromDRAM T `json:"from_dram"`
		FromDisk T `json:"from_disk"`
	}{b[Computed], b[FromDRAM], b[FromDisk]})
}

// TalkResult is what demo --engine --json prints.
type TalkResult struct {
	Engine       string `json:"engine"` // this one and what follows is the caller's to say
	ModelBytes   int64  `json:"model_bytes"`
	Threads      int    `json:"threads"`
	ChunkTokens  int    `json:"chunk_tokens"`
	Users        int    `json:"users"`
	Turns        int    `json:"turns"`
	SystemTokens int    `json:"system_prompt_tokens"`
	ReplyTokens  int    `json:"reply_tokens"`

	Prompts  []Prompt  `json:"prompts"`
	ByTurn   []Summary `json:"by_turn"`
	FollowUp Summary   `json:"follow_ups"` // all turns but the first; of one turn, that one

	Restarts  int          `json:"restarts"` // of the daemon
	DiskBytes ByWay[int64] `json:"bytes_loaded_from_disk"`
	Compared  int          `json:"answers_compared"`  // with the computed ones
	Different int          `json:"answers_different"` // in a token, or in a bit of a logit
}

// People is so many of them in words.
func People(n int) string {
	if n == 1 {
		return "1 person"
	}
	return human.Count(n) + " people"
}

// OK reports whether all answers were the computed ones.
func (r *TalkResult) OK() bool { return r.Different == 0 }

// Prompt is how one prompt was answered, by Way. A way that was left out has
// zeros.
type Prompt struct {
	User     int            `json:"user"` // from 0
	Turn     int            `json:"turn"` // from 0
	Tokens   int            `json:"tokens"`
	Seconds  ByWay[float64] `json:"first_token_seconds"`
	Restored ByWay[int]     `json:"restored_tokens"`
}

// Summary is of some prompts: means of tokens, medians of times.
type Summary struct {
	Prompts  int            `json:"prompts"`
	Tokens   float64        `json:"tokens"`
	Restored float64        `json:"restored_tokens"` // from DRAM
	Seconds  ByWay[float64] `json:"first_token_seconds"`
	// Sooner is how many times sooner than computed the first token was there:
	// the median of what the prompts say, each by itself. 0: no prompt says it.
	Sooner ByWay[float64] `json:"times_sooner"`
}

// summarize fills in what follows from the prompts.
func (r *TalkResult) summarize() {
	r.ByTurn = make([]Summary, r.Turns)
	var later []Prompt
	for turn := range r.ByTurn {
		var of []Prompt
		for _, p := range r.Prompts {
			if p.Turn == turn {
				of = append(of, p)
			}
		}
		r.ByTurn[turn] = summary(of)
		if turn > 0 || r.Turns == 1 {
			later = append(later, of...)
		}
	}
	r.FollowUp = summary(later)
}

func summary(prompts []Prompt) (s Summary) {
	s.Prompts = len(prompts)
	for _, p := range prompts {
		s.Tokens += float64(p.Tokens) / float64(len(prompts))
		s.Restored += float64(p.Restored[FromDRAM]) / float64(len(prompts))
	}
	for _, way := range Ways {
		var seconds, sooner []float64
		for _, p := range prompts {
			if p.Seconds[way] > 0 {
				seconds = append(seconds, p.Seconds[way])
				sooner = append(sooner, p.Seconds[Computed]/p.Seconds[way])
			}
		}
		s.Seconds[way], s.Sooner[way] = median(seconds), median(sooner)
	}
	return s
}

// median is 0 of nothing. It sorts the values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 0 {
		return (values[half-1] + values[half]) / 2
	}
	return values[half]
}
