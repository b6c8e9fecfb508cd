package hint

import (
	"fmt"
	"strings"
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

// TestActions: an action counts with all of its fields, or not at all and says why.
func TestActions(t *testing.T) {
	const retain, done = "kv.retain", "kvstored.done"
	for _, tc := range []struct {
		action, payload string
		retains         int
		fault           string // the end of its text; "" is none
	}{
		{retain, `{"directives": [{"priority": 5}, {"priority": 5, "start": 16, "end": 32, "duration": 1.5}]}`, 2, ""},
		{retain, `{"scope": "s", "directives": [{"priority": 5, "start": 0, "end": null, "covers_output": false}]}`, 1, ""},
		{retain, `{"scope": null, "directives": [{"priority": 5, "covers_output": true, "start": null}]}`, 1, ""},
		{retain, `{"directives": [{"priority": 5}, {"priority": 5, "covers_output": true, "start": 16}]}`, 0, "directive 1: covers_output has no start and no end"},
		{retain, `{"directives": [{"priority": 5}, {"priority": 5, "covers_output": true, "start": 0}]}`, 0, "directive 1: covers_output has no start and no end"},
		{retain, `{"directives": [{"priority": 5, "end": 16, "covers_output": true}]}`, 0, "directive 0: covers_output has no start and no end"},
		{retain, `{"directives": [{"priority": 5, "end": 2147483648}, {"priority": 5, "start": 4294967295}]}`, 2, ""},
		{retain, `{"directives": [{"priority": 5, "start": 1, "end": 18446744073709551615}]}`, 1, ""},
		{retain, `{"directives": [{"priority": 5, "end": 0}]}`, 0, "directive 0: end 0 is no whole number of tokens from 1 on"},
		{retain, `{"directives": [{"priority": 5}, {"start": 1}]}`, 0, "directive 1: priority is missing"},
		{retain, `{"directives": [{"priority": null}]}`, 0, "directive 0: priority is missing"},
		{retain, `{"directives": [{"priority": "50"}]}`, 0, `priority "50" is no whole number from 0 to 100`},
		{retain, `{"directives": [{"priority": 5, "duration": "1"}]}`, 0, `duration "1" is no number of seconds`},
		{retain, `{"directives": [{"priority": 5, "covers_output": "true"}]}`, 0, `covers_output "true" is neither true nor false`},
		{retain, `{"directives": [{"priority": {}}]}`, 0, "priority {} is no whole number from 0 to 100"},
		{retain, `{"scope": 7, "directives": [{"priority": 5}]}`, 0, "scope 7 is no text"},
		{retain, `{"scope": true, "directives": [{"priority": 5}]}`, 0, "scope true is no text"},
		{retain, `{"scope": "", "directives": [{"priority": 5}]}`, 0, `scope "" is empty; leave it out, or give a name`},
		{retain, `{"directives": [{"priority": 5, "colour": 7}]}`, 0, `directive 0: there is no field "colour"`},
		{done, `{"session_id": "s", "session_generation": 3}`, 0, ""},
		{done, `null`, 0, ""},
		{done, `{"session_id": 7}`, 0, "session_id 7 is no text"},
		{done, `{"session_generation": "3"}`, 0, `session_generation "3" is no whole number`},
		{"kvstored.pause", `{}`, 0, "kvstored.pause: seconds is missing"},
	} {
		text := fmt.Sprintf(`{"actions": [{"action_type": %q, "action_version": "1.0", "payload": %s}]}`, tc.action, tc.payload)
		a, w := Read(wire.Pairs(nil).Add("kv_hints", text))
		fault := ""
		for _, f := range w.Faults {
			fault += f.Text
		}
		if len(w.Retains) != tc.retains || (fault == "") != (tc.fault == "") || !strings.HasSuffix(fault, tc.fault) {
			t.Errorf("%s\n%d ranges, %q; want %d, %q", tc.payload, len(w.Retains), fault, tc.retains, tc.fault)
		}
		if tc.fault != "" && (a != Advice{} || w.Scope != "") {
			t.Errorf("%s\nsome of it counts: %+v, scope %q", tc.payload, a, w.Scope)
		}
	}
}
