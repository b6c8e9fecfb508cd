package main

import (
	"slices"
	"testing"
)

// TestChat: every user takes every turn in order, each prompt begins with the
// one before, all begin with the system prompt, and it is all the same again.
func TestChat(t *testing.T) {
	c := demoOptions{Users: 9, Turns: 5, Seed: 7}
	last := make(map[int][]uint32)
	turns := make(map[int]int)
	var order []int
	var system []uint32
	for turn := range c.all() {
		if turn.Number != turns[turn.User] {
			t.Fatalf("user %d takes turn %d, want %d", turn.User, turn.Number, turns[turn.User])
		}
		turns[turn.User]++
		if system == nil {
			system = slices.Clone(turn.Tokens[:systemTokens])
		}
		if !slices.Equal(turn.Tokens[:systemTokens], system) {
			t.Fatalf("user %d, turn %d: another system prompt", turn.User, turn.Number)
		}
		before := last[turn.User]
		if len(turn.Tokens) <= len(before) || !slices.Equal(turn.Tokens[:len(before)], before) {
			t.Fatalf("user %d, turn %d does not go on from the turn before", turn.User, turn.Number)
		}
		last[turn.User] = slices.Clone(turn.Tokens)
		order = append(order, turn.User)
	}
	for u := range c.Users {
		if turns[u] != c.Turns {
			t.Errorf("user %d took %d of %d turns", u, turns[u], c.Turns)
		}
	}
	if slices.Equal(last[0][:systemTokens+100], last[1][:systemTokens+100]) {
		t.Error("two users say the same")
	}
	i := 0
	for turn := range c.all() {
		if turn.User != order[i] {
			t.Fatalf("turn %d is user %d's the second time, was user %d's", i, turn.User, order[i])
		}
		i++
	}
}
