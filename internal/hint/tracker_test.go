package hint

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// TestHintsEnd: a hint that nothing proves wrong is right when it is old, or
// one too many; a client has so many open and no more.
func TestHintsEnd(t *testing.T) {
	h := NewTracker()
	now := time.Unix(0, 0)
	h.now = func() time.Time { return now }
	done, goes := Advice{Hint: policy.Done, Measured: true}, Advice{Hint: policy.Continues, Measured: true}
	prompt := func(n int) *key.Chain { return tiertest.Chain(uint64(n), 2) }
	for n := range maxClientHints + 5 {
		if taken := h.give(1, prompt(n), &done); taken != (n < maxClientHints) {
			t.Fatalf("hint %d is taken: %v", n, taken)
		}
	}
	if !h.give(2, prompt(1<<20), &goes) {
		t.Error("the budget of one client is another's")
	}
	h.Asked(prompt(3), "")
	h.Asked(prompt(3), "") // known already
	want := Stats{Done: Outcome{Given: maxClientHints, Wrong: 1}, Continues: Outcome{Given: 1}, OverBudget: 5}
	if got := h.Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	now = now.Add(hintFor)
	want.Done.Right, want.Continues.Wrong = maxClientHints-1, 1
	if got := h.Stats(); got != want {
		t.Errorf("after a while: %+v, want %+v", got, want)
	}
	if len(h.mu.open)+len(h.mu.order)+len(h.mu.client) > 0 {
		t.Errorf("%d hints, %d in order, %d clients are left", len(h.mu.open), len(h.mu.order), len(h.mu.client))
	}
	for n := range maxHints + 10 {
		h.give(uint64(n/maxClientHints), prompt(n), &done)
	}
	h.Asked(prompt(1<<21), "")
	if len(h.mu.open) > maxHints || len(h.mu.order) > maxHints {
		t.Errorf("%d hints are open, %d in order", len(h.mu.open), len(h.mu.order))
	}
}

// TestPriorities: they are counted and share the budget, but are never judged.
func TestPriorities(t *testing.T) {
	h := NewTracker()
	now := time.Unix(0, 0)
	h.now = func() time.Time { return now }
	high, _ := Read(wire.Pairs(nil).Add("priority", "high"))
	for n := range maxClientHints + 2 {
		if taken := h.give(1, tiertest.Chain(uint64(n), 2), &high); taken != (n < maxClientHints) {
			t.Fatalf("priority %d is taken: %v", n, taken)
		}
	}
	h.Asked(tiertest.Chain(3, 2), "")
	if !h.give(1, tiertest.Chain(1<<20, 2), &high) {
		t.Error("a prompt that came back still counts")
	}
	now = now.Add(hintFor)
	if got, want := h.Stats(), (Stats{Priority: maxClientHints + 1, OverBudget: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if len(h.mu.open)+len(h.mu.client) > 0 {
		t.Errorf("%d are open", len(h.mu.open))
	}
}

// TestPrioritiesJudgeNothing: what one client says of a prompt, or a session,
// stays judged when another wishes something for it, and the other way round.
func TestPrioritiesJudgeNothing(t *testing.T) {
	high, _ := Read(wire.Pairs(nil).Add("priority", "high"))
	done := Advice{Hint: policy.Done, Measured: true}
	for _, session := range []string{"", "s"} {
		high.Session, done.Session = session, session
		for order, given := range [][]*Advice{{&done, &high}, {&high, &done}} {
			h := NewTracker()
			prompt := tiertest.Chain(1, 2)
			for client, a := range given {
				if !h.give(uint64(client), prompt, a) {
					t.Fatalf("session %q, order %d: client %d is not taken", session, order, client)
				}
			}
			h.Asked(prompt, session)
			want := Stats{Done: Outcome{Given: 1, Wrong: 1}, Priority: 1}
			if got := h.Stats(); got != want {
				t.Errorf("session %q, order %d: %+v, want %+v", session, order, got, want)
			}
			if len(h.mu.open)+len(h.mu.client) > 0 {
				t.Errorf("session %q, order %d: %d are open, of %d clients", session, order, len(h.mu.open), len(h.mu.client))
			}
		}
	}
}

// TestHintsAreFound: a long prompt is searched to its bound.
func TestHintsAreFound(t *testing.T) {
	h := NewTracker()
	goes := Advice{Hint: policy.Continues, Measured: true}
	long := tiertest.Chain(1, maxHintChunks+1)
	for n, i := range []int{0, hintRound - 1, hintRound, 5*hintRound + 7, maxHintChunks - 1} {
		part := *long
		part.Hashes, part.Tokens = long.Hashes[:i+1], long.Tokens[:i+1]
		h.give(1, &part, &goes)
		h.give(1, tiertest.Chain(uint64(2+n), 3), &goes) // of others
	}
	h.give(1, long, &goes)
	h.Asked(long, "")
	if got, want := h.Stats().Continues, (Outcome{Given: 11, Right: 5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestAnswers: how long an answer was shows in the next prompt, as far as that
// can be; a client that says too much is wrong, and all share one budget.
func TestAnswers(t *testing.T) {
	h := NewTracker()
	now := time.Unix(0, 0)
	h.now = func() time.Time { return now }
	const chunk = tiertest.ChunkTokens
	prompt := func(n, chunks int) *key.Chain {
		c := *tiertest.Chain(uint64(n), 10)
		c.Hashes, c.Tokens = c.Hashes[:chunks], c.Tokens[:chunks]
		return &c
	}
	want := Outcome{}
	for n, x := range []struct{ tokens, comesBack int }{
		{3 * chunk, 5}, {3*chunk + 1, 4}, {1, 3}, // right, wrong, right
		{chunk, 2}, {chunk, 1}, // neither: the same again, and less
	} {
		c := prompt(n, 2)
		if !h.expect(1, c, x.tokens) {
			t.Fatalf("answer %d is not taken", n)
		}
		h.Asked(prompt(n, x.comesBack), "")
		want.Given++
	}
	want.Right, want.Wrong = 2, 1
	if got := h.Stats().Answer; got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	both := prompt(9, 2)
	goes := Advice{Hint: policy.Continues, Measured: true}
	if !h.give(1, both, &goes) || !h.expect(1, both, 9*chunk) {
		t.Error("a prompt cannot have both hints")
	}
	h.Asked(prompt(9, 3), "")
	want.Given, want.Wrong = want.Given+1, want.Wrong+1
	if got := h.Stats(); got.Answer != want || got.Continues != (Outcome{Given: 1, Right: 1}) {
		t.Errorf("both: %+v", got)
	}
	now = now.Add(hintFor)
	if got := h.Stats().Answer; got != want || len(h.mu.open)+len(h.mu.client) > 0 {
		t.Errorf("after a while: %+v, want %+v; %d are open", got, want, len(h.mu.open))
	}
	for n := range maxClientHints + 3 {
		h.expect(1, prompt(10+n, 1), 1)
	}
	if got := h.Stats().OverBudget; got != 3 {
		t.Errorf("%d over budget, want 3", got)
	}
}

// TestReadAnswer: an answer is of a number of tokens, and nothing else.
func TestReadAnswer(t *testing.T) {
	for text, want := range map[string]Advice{
		"300": {Answer: 300}, "0": {Bad: 1}, "-1": {Bad: 1}, "many": {Bad: 1}, "": {Bad: 1}, "99999999999": {Bad: 1},
	} {
		if got, _ := Read(wire.Pairs(nil).Add("expected_output_tokens", text)); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}
