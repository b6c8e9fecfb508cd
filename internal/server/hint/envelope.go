package hint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/policy"
)

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

// actions are those that are carried out, all of version 1.
var actions = map[string]func(r *wishing, s Said, payload []byte) error{
	"kv.retain":        readRetain,
	"kv.prefetch":      func(r *wishing, _ Said, p []byte) error { return r.ofSession(p, func() { r.Prefetch = true }) },
	"kv.demote":        readDone,
	"kv.deref":         readDone,
	"kvstored.done":    readDone,
	"kvstored.pause":   func(r *wishing, _ Said, p []byte) error { return readSeconds(p, time.Millisecond, maxPause, &r.Pause) },
	"kvstored.max_age": func(r *wishing, _ Said, p []byte) error { return readSeconds(p, time.Second, MaxDuration, &r.MaxAge) },
}

// read carries the actions of an envelope over; each that cannot be is a fault.
func (r *wishing) read(text []byte) {
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		r.fault(Said{wire.NoAction, "kv_hints"}, wire.CodeBadRequest, "no envelope: %v", err)
		return
	}
	known := 0
	for i, a := range e.Actions {
		said := Said{uint32(i), a.ID}
		do, ok := actions[a.Type]
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
		if err := do(r, said, a.Payload); err != nil {
			r.fault(said, codeOf(err), "%s: %v", a.Type, err)
		}
	}
}

// strictly reads a payload of which each field is known; nothing is the empty object.
func strictly(payload []byte, into any) error {
	if len(payload) == 0 || string(payload) == "null" {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// directive is one range of a kv.retain.
type directive struct {
	Start    *uint64  `json:"start"`
	End      *uint64  `json:"end"`
	Priority *uint8   `json:"priority"`
	Duration *float64 `json:"duration"`
	Output   bool     `json:"covers_output"`
}

func readRetain(r *wishing, s Said, payload []byte) error {
	var p struct {
		Scope      *string           `json:"scope"`
		Directives []json.RawMessage `json:"directives"`
	}
	if err := strictly(payload, &p); err != nil {
		return err
	}
	var scope string
	if p.Scope != nil {
		if err := named(*p.Scope, &scope); err != nil {
			return errors.New("scope: " + err.Error())
		}
	}
	if r.Scope != "" && scope != "" && scope != r.Scope {
		return fmt.Errorf("scope %.80q beside %.80q: one request has one", scope, r.Scope)
	}
	ranges := make([]Retain, len(p.Directives))
	for i, raw := range p.Directives {
		var err error
		if ranges[i], err = rangeOf(raw); err != nil {
			return fmt.Errorf("directive %d: %w", i, err)
		}
	}
	if scope != "" {
		r.Scope = scope
	}
	for _, k := range ranges {
		k.Said = s
		r.keep(k)
	}
	return nil
}

func rangeOf(raw []byte) (k Retain, err error) {
	var d directive
	if err := strictly(raw, &d); err != nil {
		return k, err
	}
	switch {
	case d.Priority == nil || *d.Priority > MaxPriority:
		return k, errors.New("priority is no whole number from 0 to 100")
	case d.Output && (d.Start != nil || d.End != nil):
		return k, errors.New("covers_output has no start and no end")
	case d.End != nil && *d.End == 0:
		return k, errors.New("end is 0; null is the end of the sequence")
	}
	k = Retain{Output: d.Output, For: MaxDuration}
	if d.Start != nil {
		k.From = *d.Start
	}
	if d.End != nil {
		k.To = *d.End
	}
	if d.Duration != nil {
		err = durationOf("duration", *d.Duration, 0, MaxDuration, &k.For)
	}
	if *d.Priority == 0 {
		k.For = 0
	}
	return k, err
}

func durationOf(name string, s float64, least, most time.Duration, to *time.Duration) error {
	if err := duration(s, least, most, to); err != nil {
		return fmt.Errorf("%s %v %w", name, s, err)
	}
	return nil
}

// ofSession reads a payload that may name the session.
func (r *wishing) ofSession(payload []byte, do func()) error {
	var p struct {
		Session    *string `json:"session_id"`
		Generation *uint64 `json:"session_generation"` // the engine's own
	}
	if err := strictly(payload, &p); err != nil {
		return err
	}
	if p.Session != nil {
		var session string
		if err := named(*p.Session, &session); err != nil {
			return errors.New("session_id: " + err.Error())
		}
		if r.Session != "" && r.Session != session {
			return fmt.Errorf("session_id %.80q beside the session %.80q: one request has one", session, r.Session)
		}
		r.Session = session
	}
	do()
	return nil
}

func readDone(r *wishing, _ Said, payload []byte) error {
	return r.ofSession(payload, func() { r.Hint, r.Measured = policy.Done, true })
}

// readSeconds reads a payload of a number of seconds.
func readSeconds(payload []byte, least, most time.Duration, to *time.Duration) error {
	var p struct {
		Seconds float64 `json:"seconds"`
	}
	if err := strictly(payload, &p); err != nil {
		return err
	}
	return durationOf("seconds", p.Seconds, least, most, to)
}
