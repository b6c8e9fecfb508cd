package hint

import (
	"testing"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/policy"
)

// TestReadAnswer: an answer is of a number of tokens, and nothing else; what is said of
// the prompt comes before it.
func TestReadAnswer(t *testing.T) {
	long := Advice{Hint: policy.AnswerHint(300)}
	for text, want := range map[string]Advice{"300": long, "0": {}, "-1": {}, "many": {}, "": {}, "99999999999": {}} {
		got, w := Read(wire.Pairs(nil).Add("expected_output_tokens", text))
		if faults := len(w.Faults); got != want || (faults == 0) != (want == long) {
			t.Errorf("%q: %+v with %d faults, want %+v", text, got, faults, want)
		}
	}
	both := wire.Pairs(nil).Add("expected_output_tokens", "300").Add("priority", "low")
	if got, _ := Read(both); got != (Advice{Hint: policy.Done}) {
		t.Errorf("with a priority: %+v", got)
	}
}
