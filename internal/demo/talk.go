package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
)

// How people talk with an engine: short questions, and answers that are as
// short as a demo has time for.
const (
	ContextTokens      = 4096 // of the engine
	TalkSystemTokens   = 2048
	replyTokens        = 16
	minAsked, maxAsked = 40, 160
	firstToken         = 3 // of the vocabulary; those before it have a meaning
)

// The bounds of a talk: turns that fit in the engine's context, and people whose
// prompts fit on the demo's disk.
const (
	MostTurns   = (ContextTokens - TalkSystemTokens) / (maxAsked + replyTokens)
	MostTalkers = 64
)

// Engine computes, restores and stores the KV of prompts. Its context is empty
// before each prompt.
type Engine interface {
	// Ask has it answer one prompt. It returns early where ctx ends.
	Ask(ctx context.Context, q Question) (Answer, error)
}

// Question is a prompt, and what is to be done with its KV.
type Question struct {
	Prompt    []int `json:"prompt"`
	Reply     int   `json:"reply"`     // how many tokens to generate
	Restarted bool  `json:"restarted"` // the daemon was, since the last question
	Restore   bool  `json:"restore"`   // what is stored of the prompt; otherwise all is computed
	Store     bool  `json:"store"`     // what is missing of the prompt, afterwards
}

// Answer is what an engine says.
type Answer struct {
	Restored          int     `json:"restored"` // tokens
	FirstTokenSeconds float64 `json:"first_token_seconds"`
	Tokens            []int   `json:"tokens"`
	Logits            string  `json:"logits"` // a hash of all that the tokens were chosen by
}

// same reports whether two answers have the same tokens, chosen by the same
// logits, bit by bit.
func (a *Answer) same(b *Answer) bool {
	return a.Logits == b.Logits && slices.Equal(a.Tokens, b.Tokens)
}

// LoadedDaemon is a daemon that tells its loads.
type LoadedDaemon interface {
	Daemon
	// FromDisk is how many bytes it has loaded from disk since its start.
	FromDisk(ctx context.Context) (int64, error)
}

// TalkOptions of a talk. Daemon and engine run already, and run on.
type TalkOptions struct {
	Users, Turns int
	Seed         uint64
	Vocabulary   int // tokens that the engine's model knows
	Daemon       LoadedDaemon
	Engine       Engine
	Answered     func(user, turn int, way Way) // is told of each answer
}

// errVocabulary is a model that knows no tokens to talk in.
var errVocabulary = errors.New("the model's vocabulary is too small")

// Talk has people talk with an engine in turn. Each prompt is answered in each
// Way, one right after the other: computed, then from disk by a daemon that was
// just restarted, then from DRAM. Only then is it stored.
func Talk(ctx context.Context, o TalkOptions) (*TalkResult, error) {
	if o.Vocabulary <= firstToken {
		return nil, fmt.Errorf("%w: %d tokens", errVocabulary, o.Vocabulary)
	}
	t := talk{TalkOptions: &o, rng: rand.New(rand.NewPCG(o.Seed, 0)), result: TalkResult{
		Users: o.Users, Turns: o.Turns, SystemTokens: TalkSystemTokens, ReplyTokens: replyTokens,
	}}
	system := t.say(nil, TalkSystemTokens)
	prompts := make([][]int, o.Users)
	for turn := range o.Turns {
		for user := range prompts {
			if turn == 0 {
				prompts[user] = slices.Clone(system)
			}
			prompts[user] = t.say(prompts[user], minAsked+t.rng.IntN(maxAsked-minAsked))
			reply, err := t.ask(ctx, user, turn, prompts[user])
			if err != nil {
				return nil, fmt.Errorf("user %d, turn %d: %w", user+1, turn+1, err)
			}
			prompts[user] = append(prompts[user], reply...)
		}
	}
	t.result.summarize()
	return &t.result, nil
}

// talk is the playing part of a talk.
type talk struct {
	*TalkOptions
	rng    *rand.Rand
	result TalkResult
}

// say adds n tokens to a prompt.
func (t *talk) say(prompt []int, n int) []int {
	for range n {
		prompt = append(prompt, firstToken+t.rng.IntN(t.Vocabulary-firstToken))
	}
	return prompt
}

// ask has one prompt answered in each way, and returns the reply.
func (t *talk) ask(ctx context.Context, user, turn int, prompt []int) ([]int, error) {
	p := Prompt{User: user, Turn: turn, Tokens: len(prompt)}
	var computed Answer
	stored := len(t.result.Prompts) > 0 // the first prompt is only stored
	for _, way := range Ways {
		if way == FromDisk && !stored {
			continue
		}
		a, loaded, err := t.one(ctx, way, prompt)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", way, err)
		}
		if way == Computed {
			computed = a
		} else if t.result.Compared++; !a.same(&computed) {
			t.result.Different++
		}
		if way == Computed || stored {
			p.Seconds[way], p.Restored[way] = a.FirstTokenSeconds, a.Restored
		}
		t.result.DiskBytes[way] += loaded
		t.Answered(user, turn, way)
	}
	t.result.Prompts = append(t.result.Prompts, p)
	return computed.Tokens, nil
}

// one is the answer in one way, and what the daemon loaded from disk for it.
func (t *talk) one(ctx context.Context, way Way, prompt []int) (a Answer, loaded int64, err error) {
	if way == FromDisk {
		if err := t.Daemon.Stop(ctx); err != nil {
			return a, 0, err
		}
		if _, err := t.Daemon.Start(ctx); err != nil {
			return a, 0, err
		}
		t.result.Restarts++
	}
	before, err := t.Daemon.FromDisk(ctx)
	if err != nil {
		return a, 0, err
	}
	a, err = t.Engine.Ask(ctx, Question{
		Prompt: prompt, Reply: replyTokens, Restarted: way == FromDisk, Restore: way != Computed, Store: way == FromDRAM,
	})
	if err != nil {
		return a, 0, err
	}
	after, err := t.Daemon.FromDisk(ctx)
	return a, after - before, err
}
