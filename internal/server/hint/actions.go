package hint

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/policy"
)

// Bounds of what a client may wish for, as of the hints that engines carry.
const (
	MaxPriority   = 100 // 0 releases, and all others are one
	MaxDuration   = 30 * 24 * time.Hour
	maxPause      = 24 * time.Hour
	MaxActions    = 16
	MaxDirectives = 128
	maxEnvelope   = 64 << 10 // bytes of kv_hints
)

// Advice is what request_configs say that the policies understand.
type Advice struct {
	Hint     policy.Hint
	Measured bool   // the hint says what will happen, not only what is wished
	Session  string // several requests of one have the same; "" is none
	Force    bool   // the chunks are to be stored also where the policies refuse them

	PrefillDepth int // see store.Prompt; 0 = not said
}

// Actions is what request_configs ask for beyond Advice. The zero Actions asks for
// nothing.
type Actions struct {
	Scope        string // names the claims; "" is the session
	PromptTokens uint64 // where in the chain the output begins; 0 = at its end
	Retains      []Retain
	Pause        time.Duration // the conversation goes on after about so long; 0 = not said
	MaxAge       time.Duration // of what is stored of the prompt; 0 = not said
	Prefetch     bool          // promote the prompt
	Faults       []wire.Fault
}

// Any reports whether there is something to carry out.
func (w *Actions) Any() bool {
	return len(w.Retains) > 0 || w.Pause > 0 || w.MaxAge > 0 || w.Prefetch
}

// Retain asks for a range of a prompt to be kept.
type Retain struct {
	From, To uint64        // tokens; To 0 = to the end, with what is generated
	Output   bool          // what is generated, instead of From and To
	For      time.Duration // 0 releases
	Said     Said          // where it was asked for
}

// Said is where a wish stands, for the faults about it.
type Said struct {
	Action uint32 // number in the envelope, or wire.NoAction
	Name   string
}

// Fault is the fault of what stands there.
func (s Said) Fault(code wire.Code, format string, args ...any) wire.Fault {
	return wire.Fault{Code: code, Action: s.Action, Name: cut(s.Name), Text: fmt.Sprintf(format, args...)}
}

// cut bounds a text of a client that goes back to it.
func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), wire.MaxStrBytes)], "")
}

func (w *Actions) fault(s Said, code wire.Code, format string, args ...any) {
	w.Add(s.Fault(code, format, args...))
}

// Add keeps a fault, unless there are as many as a reply tells.
func (w *Actions) Add(f wire.Fault) {
	if len(w.Faults) < wire.MaxFaults {
		w.Faults = append(w.Faults, f)
	}
}

// configReader reads one config after the other, and the fields of an envelope's actions as such.
type configReader struct {
	Advice
	Actions
	own      Retain // of retain_priority and those beside it
	retains  bool   // retain_priority was given
	releases bool   // as 0
	bounded  bool   // own was given a start or an end
	ranged   string // the name of a range that was given without it
	envelope []byte
	answer   int // tokens that the answer is expected to have; 0 = not said
}

// Read reads all that the daemon understands of request_configs, by the names of
// docs/protocol-more.md. The rest is among the faults.
func Read(configs wire.Pairs) (Advice, Actions) {
	if configs.Len() == 0 {
		return Advice{}, Actions{}
	}
	r := configReader{own: Retain{For: MaxDuration, Said: Said{wire.NoAction, "retain_priority"}}}
	for name, value := range configs.All() {
		r.config(string(name), string(value))
	}
	r.Measured = r.Measured && r.Hint != policy.NoHint
	switch {
	case r.retains:
		r.keep()
	case r.ranged != "":
		r.fault(Said{wire.NoAction, r.ranged}, wire.CodeBadRequest, "there is no retain_priority beside it")
	}
	if r.envelope != nil {
		r.read(r.envelope)
	}
	if r.answer > 0 && r.Hint == policy.NoHint {
		r.Hint = policy.AnswerHint(r.answer)
	}
	r.Faults = slices.Clip(r.Faults) // a batch adds to it for each of its prompts
	return r.Advice, r.Actions
}

// config reads one; a name with a dot is another program's, but for ours.
func (r *configReader) config(name, value string) {
	said := Said{wire.NoAction, name}
	bare, ours := strings.CutPrefix(name, "kvstored.")
	if !ours && strings.Contains(name, ".") {
		return
	}
	read, known := configs[bare]
	if !known {
		r.fault(said, wire.CodeUnsupported, "the daemon knows no such config")
		return
	}
	if err := read(r, value); err != nil {
		r.fault(said, codeOf(err), "%.80q %v", value, err)
	}
}

// tooLarge is an error for a value beyond a bound.
type tooLarge struct{ error }

func codeOf(err error) wire.Code {
	if errors.As(err, new(tooLarge)) {
		return wire.CodeTooLarge
	}
	return wire.CodeBadRequest
}

// configs are the readers of all names. A reader explains a wrong value.
var configs = map[string]func(r *configReader, value string) error{
	"session":         func(r *configReader, v string) error { return named(v, &r.Session) },
	"scope":           func(r *configReader, v string) error { return named(v, &r.Scope) },
	"turn_over":       readTurnOver,
	"priority":        readPriority,
	"store":           readStore,
	"kv_hints":        readEnvelope,
	"retain_priority": readRetainPriority,
	"retain_seconds": func(r *configReader, v string) error {
		r.ranged = "retain_seconds"
		return seconds(v, 0, MaxDuration, &r.own.For)
	},
	"retain_start": func(r *configReader, v string) error {
		r.ranged, r.bounded = "retain_start", true
		return tokens(v, 0, 64, &r.own.From)
	},
	"retain_end": func(r *configReader, v string) error {
		r.ranged, r.bounded = "retain_end", true
		return tokens(v, 1, 64, &r.own.To)
	},
	"covers_output": readCoversOutput,
	"prompt_tokens": func(r *configReader, v string) error { return tokens(v, 1, 31, &r.PromptTokens) },
	"pause_seconds": func(r *configReader, v string) error {
		return seconds(v, time.Millisecond, maxPause, &r.Pause)
	},
	"max_age_seconds": func(r *configReader, v string) error {
		return seconds(v, time.Second, MaxDuration, &r.MaxAge)
	},
	"prefill_depth":          func(r *configReader, v string) error { return tokens(v, 1, 31, &r.PrefillDepth) },
	"expected_output_tokens": func(r *configReader, v string) error { return tokens(v, 1, 31, &r.answer) },
}

func readTurnOver(r *configReader, v string) error {
	h, ok := map[string]policy.Hint{"done": policy.Done, "continues": policy.Continues}[v]
	if !ok {
		return errors.New("is neither done nor continues")
	}
	r.Measured, r.Hint = true, h
	return nil
}

func readPriority(r *configReader, v string) error {
	h, ok := map[string]policy.Hint{"low": policy.Done, "normal": policy.NoHint, "high": policy.Continues}[v]
	if !ok {
		return errors.New("is none of low, normal and high")
	}
	if r.Hint == policy.NoHint {
		r.Hint = h
	}
	return nil
}

func readStore(r *configReader, v string) error {
	if r.Force = v == "always"; !r.Force && v != "worth" {
		return errors.New("is neither always nor worth")
	}
	return nil
}

func readRetainPriority(r *configReader, v string) error {
	n, err := strconv.ParseUint(v, 10, 8)
	if err != nil || n > MaxPriority {
		return errors.New("is no whole number from 0 to 100")
	}
	r.retains, r.releases = true, n == 0
	return nil
}

func readCoversOutput(r *configReader, v string) error {
	r.ranged = "covers_output"
	if r.own.Output = v == "true"; !r.own.Output && v != "false" {
		return errors.New("is neither true nor false")
	}
	return nil
}

func readEnvelope(r *configReader, v string) error {
	if len(v) > maxEnvelope {
		return tooLarge{fmt.Errorf("has %d bytes; %d are allowed", len(v), maxEnvelope)}
	}
	r.envelope = []byte(v)
	return nil
}

// named reads a name of a client's choice.
func named(v string, to *string) error {
	switch {
	case v == "":
		return errors.New("is empty; leave it out, or give a name")
	case len(v) > wire.MaxStrBytes:
		return tooLarge{fmt.Errorf("has %d bytes; use at most %d", len(v), wire.MaxStrBytes)}
	case *to != "" && *to != v:
		return fmt.Errorf("comes beside %.80q: one request has one", *to)
	}
	*to = v
	return nil
}

// tokens reads a number of tokens of at most so many bits.
func tokens[N int | uint64](v string, least uint64, bits int, to *N) error {
	n, err := strconv.ParseUint(v, 10, bits)
	if err != nil || n < least {
		return fmt.Errorf("is no whole number of tokens from %d on", least)
	}
	*to = N(n)
	return nil
}

// seconds reads a number of seconds within bounds.
func seconds(v string, least, most time.Duration, to *time.Duration) error {
	s, err := strconv.ParseFloat(v, 64)
	switch {
	case err != nil:
		return errors.New("is no number of seconds")
	case math.IsNaN(s) || s < least.Seconds():
		return fmt.Errorf("is less than %v", least)
	case s > most.Seconds():
		return tooLarge{fmt.Errorf("is more than %.0f seconds", most.Seconds())}
	}
	*to = time.Duration(s * float64(time.Second))
	return nil
}

// keep takes the range that was read, unless it is one too many or contradicts itself.
func (r *configReader) keep() {
	k := r.own
	if r.releases {
		k.For = 0
	}
	switch {
	case len(r.Retains) >= MaxDirectives:
		r.fault(k.Said, wire.CodeTooLarge, "more than %d ranges in all", MaxDirectives)
	case k.Output && (k.From > 0 || k.To > 0):
		r.fault(k.Said, wire.CodeBadRequest, "what is generated has no start and no end")
	case k.To > 0 && k.To <= k.From:
		r.fault(k.Said, wire.CodeBadRequest, "the range ends at %d and begins at %d", k.To, k.From)
	default:
		r.Retains = append(r.Retains, k)
	}
}

// envelope is the hints that an orchestrator has attached to a request and that
// engines carry without reading them.
type envelope struct {
	ProtocolVersion string   `json:"protocol_version"`
	Actions         []action `json:"actions"`
}

type action struct {
	ID      string          `json:"action_id"`
	Type    string          `json:"action_type"`
	Version string          `json:"action_version"`
	Payload json.RawMessage `json:"payload"`
}

// field is what a field of a payload is as a config; "" is a number of the engine's own.
type field struct {
	name, config string
	must         bool // it has to be there
}

// texts are the configs whose fields are texts; others are numbers or truths.
var texts = []string{"scope", "session"}

// ranges is the field of kv.retain that lists ranges.
const ranges = "directives"

var (
	// session_generation is no fault: no prompt has one to compare it with, and a fault would
	// say that the action does not count, which is about the prompt that it comes with.
	ofSession = []field{{"session_id", "session", false}, {"session_generation", "", false}}
	ofRange   = []field{
		{"priority", "retain_priority", true}, {"duration", "retain_seconds", false},
		{"start", "retain_start", false}, {"end", "retain_end", false}, {"covers_output", "covers_output", false},
	}
)

// actions are those that are carried out, all of version 1: their fields, and what they say
// besides.
var actions = map[string]struct {
	fields []field
	say    func(r *configReader)
}{
	"kv.retain":        {[]field{{"scope", "scope", false}, {ranges, ranges, false}}, func(*configReader) {}},
	"kv.prefetch":      {ofSession, func(r *configReader) { r.Prefetch = true }},
	"kv.demote":        {ofSession, sayDone},
	"kv.deref":         {ofSession, sayDone},
	"kvstored.done":    {ofSession, sayDone},
	"kvstored.pause":   {[]field{{"seconds", "pause_seconds", true}}, func(*configReader) {}},
	"kvstored.max_age": {[]field{{"seconds", "max_age_seconds", true}}, func(*configReader) {}},
}

func sayDone(r *configReader) { r.Hint, r.Measured = policy.Done, true }

// read carries the actions of an envelope over; each that cannot be is a fault.
func (r *configReader) read(text []byte) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		r.fault(Said{wire.NoAction, "kv_hints"}, wire.CodeBadRequest, "no envelope: %v", err)
		return
	}
	known := 0
	for i, a := range e.Actions {
		said := Said{uint32(i), a.ID}
		is, ok := actions[a.Type]
		major, _, _ := strings.Cut(a.Version, ".")
		switch {
		case strings.HasPrefix(a.Type, "vllm.") || strings.HasPrefix(a.Type, "sglang."):
			continue // the engine's own
		case !ok:
			r.fault(said, wire.CodeUnsupported, "the daemon knows no action %.80q", a.Type)
			continue
		case major != "1":
			r.fault(said, wire.CodeUnsupported, "%s has the version %.20q; 1 is known", a.Type, a.Version)
			continue
		}
		if known++; known > MaxActions {
			r.fault(said, wire.CodeTooLarge, "more than %d actions", MaxActions)
			continue
		}
		next := *r // of an action with a field that cannot be read nothing counts
		if err := next.payload(said, is.fields, a.Payload); err != nil {
			r.fault(said, codeOf(err), "%s: %v", a.Type, err)
			continue
		}
		is.say(&next)
		*r = next
	}
}

// payload reads an object, each field of which is known. Null, and nothing, is the empty one.
func (r *configReader) payload(said Said, known []field, object json.RawMessage) error {
	var has map[string]json.RawMessage
	if len(object) > 0 {
		if err := json.Unmarshal(object, &has); err != nil {
			return err
		}
	}
	for _, f := range known {
		raw, there := has[f.name]
		delete(has, f.name)
		var err error
		switch there = there && string(raw) != "null"; {
		case !there && f.must:
			err = fmt.Errorf("%s is missing", f.name)
		case !there:
		case f.config == ranges:
			err = r.ranges(said, raw)
		default:
			err = r.field(f, raw)
		}
		if err != nil {
			return err
		}
	}
	for name := range has {
		return fmt.Errorf("there is no field %.80q", name)
	}
	return nil
}

// field reads one as its config is read. Numbers and truths are the same there as in JSON.
func (r *configReader) field(f field, raw json.RawMessage) (err error) {
	value := string(raw)
	switch {
	case f.config == "" && json.Unmarshal(raw, new(uint64)) != nil:
		err = errors.New("is no whole number")
	case f.config == "":
	case slices.Contains(texts, f.config) && json.Unmarshal(raw, &value) != nil:
		err = errors.New("is no text")
	default:
		err = configs[f.config](r, value)
	}
	if err != nil {
		return fmt.Errorf("%s %.80s %w", f.name, raw, err)
	}
	return nil
}

// ranges reads those of a kv.retain.
func (r *configReader) ranges(said Said, list json.RawMessage) error {
	var objects []json.RawMessage
	if err := json.Unmarshal(list, &objects); err != nil {
		return err
	}
	for i, object := range objects {
		r.own, r.releases, r.bounded = Retain{For: MaxDuration, Said: said}, false, false
		err := r.payload(said, ofRange, object)
		if err == nil && r.own.Output && r.bounded {
			err = errors.New("covers_output has no start and no end")
		}
		if err != nil {
			return fmt.Errorf("directive %d: %w", i, err)
		}
		r.keep()
	}
	return nil
}
