package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func read(t *testing.T, text string, block int) ([]Request, error) {
	t.Helper()
	var out []Request
	for req, err := range Requests(strings.NewReader(text), "t.jsonl", Form{BlockTokens: block}) {
		if err != nil {
			return out, err
		}
		out = append(out, req)
	}
	return out, nil
}

func TestRequests(t *testing.T) {
	got, err := read(t, `{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 27.5, "input_length": 512, "output_length": 0, "hash_ids": [7], "session": "passed over"}
{"timestamp": 28, "input_length": 1025, "output_length": 0, "hash_ids": [0, 1]}
{"timestamp": 29, "input_length": 100, "output_length": 0, "hash_ids": []}`, 512)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || got[0].Line != 1 || got[1].Line != 2 || got[0].InputTokens != 1025 ||
		!slices.Equal(got[0].BlockIDs, []uint64{0, 1, 2}) || got[1].Millis != 27 ||
		!slices.Equal(got[2].BlockIDs, []uint64{0, 1}) || len(got[3].BlockIDs) != 0 || got[3].InputTokens != 100 {
		t.Errorf("read %+v", got)
	}
}

// TestBadLines: each bad line is refused with file and line, and the requests
// before it are still played.
func TestBadLines(t *testing.T) {
	const good = `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0]}` + "\n"
	for what, line := range map[string]string{
		"not JSON":            `timestamp 0`,
		"cut":                 `{"timestamp": 0, "input_length": 512, "output_`,
		"two on a line":       strings.TrimSpace(good) + strings.TrimSpace(good),
		"no input length":     `{"timestamp": 0, "output_length": 5, "hash_ids": [0]}`,
		"no ids":              `{"timestamp": 0, "input_length": 512, "output_length": 5}`,
		"null ids":            `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": null}`,
		"text for a number":   `{"timestamp": 0, "input_length": "512", "output_length": 5, "hash_ids": [0]}`,
		"too few ids":         `{"timestamp": 0, "input_length": 1025, "output_length": 5, "hash_ids": [0]}`,
		"too many ids":        `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0, 1]}`,
		"negative id":         `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [-1]}`,
		"the reserved id":     `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [18446744073709551615]}`,
		"fraction of a token": `{"timestamp": 0, "input_length": 511.5, "output_length": 5, "hash_ids": [0]}`,
		"no prompt":           `{"timestamp": 0, "input_length": 0, "output_length": 5, "hash_ids": []}`,
		"negative time":       `{"timestamp": -1, "input_length": 512, "output_length": 5, "hash_ids": [0]}`,
		"huge prompt":         `{"timestamp": 0, "input_length": 99999999999, "output_length": 5, "hash_ids": [0]}`,
		"a list":              `[1]`,
		"very long":           `{"timestamp": 0` + strings.Repeat(" ", maxLineBytes) + `}`,
	} {
		got, err := read(t, good+line+"\n"+good, 512)
		if !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), "t.jsonl:2: ") {
			t.Errorf("%s: error %v, want one about t.jsonl:2", what, err)
		}
		if len(got) != 1 {
			t.Errorf("%s: %d requests before the error, want 1", what, len(got))
		}
	}
}

// TestLinesGoOn: each bad line, however long, costs its error and nothing else.
func TestLinesGoOn(t *testing.T) {
	const good = `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0]}` + "\n"
	text := good + "bad\n\n" + strings.Repeat(" ", 2*maxLineBytes) + "\n" + good + `{"cut`
	var lines, bad []int
	for req, err := range Lines(strings.NewReader(text), "t", Form{BlockTokens: 512}) {
		lines = append(lines, req.Line)
		if errors.Is(err, ErrTrace) {
			bad = append(bad, req.Line)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(lines, []int{1, 2, 4, 5, 6}) || !slices.Equal(bad, []int{2, 4, 6}) {
		t.Errorf("lines %v, bad %v", lines, bad)
	}
}

// TestLeftOut: a byte order mark and blank lines are passed over, and times and outputs that
// are left out are known to be.
func TestLeftOut(t *testing.T) {
	got, err := read(t, "\uFEFF"+`{"timestamp": 7, "input_length": 512, "hash_ids": [0]}

{"input_length": 512, "output_length": 3, "hash_ids": [0]}
 	
{"input_length": 512, "session_id": "a", "timestamp": 10, "hash_ids": [0]}
{"input_length": 512, "session_id": "b", "delay": 4, "hash_ids": [0]}
{"input_length": 512, "session_id": "a", "delay": 2.5, "hash_ids": [0]}
{"input_length": 512, "session_id": null, "delay": 2.5, "hash_ids": [0]}`, 512)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Request{
		{Line: 1, Millis: 7, NoOutput: true},
		{Line: 3, Millis: 7, Untimed: true, OutputTokens: 3},
		{Line: 5, Millis: 10, Session: 1, NoOutput: true},
		{Line: 6, Millis: 4, Session: 2, NoOutput: true},
		{Line: 7, Millis: 12, Session: 1, NoOutput: true},
		{Line: 8, Millis: 12, Untimed: true, NoOutput: true},
	} {
		is := got[i]
		if is.Line != want.Line || is.Millis != want.Millis || is.Untimed != want.Untimed || is.Session != want.Session || is.OutputTokens != want.OutputTokens || is.NoOutput != want.NoOutput {
			t.Errorf("request %d: %+v, want %+v", i, is, want)
		}
	}
}

// TestTimes: times have a unit, and those that cannot be are refused by name.
func TestTimes(t *testing.T) {
	at := func(time string, unit time.Duration) (Request, error) {
		text := `{"timestamp": ` + time + `, "input_length": 512, "output_length": 5, "hash_ids": [0]}`
		for req, err := range Requests(strings.NewReader(text), "t", Form{BlockTokens: 512, Unit: unit}) {
			return req, err
		}
		panic("nothing")
	}
	for _, c := range []struct {
		time string
		unit time.Duration
		want int64
	}{{"1.5", time.Second, 1500}, {"1.5", 0, 1}, {"2000000", time.Nanosecond, 2}, {"1795514400", time.Second, 1795514400000}} {
		if req, err := at(c.time, c.unit); err != nil || req.Millis != c.want {
			t.Errorf("%s in %v: %d ms, %v", c.time, c.unit, req.Millis, err)
		}
	}
	for time, want := range map[string]string{"1e30": "too large", "1e400": "too large", "-1": "must not be negative"} {
		if _, err := at(time, 0); !errors.Is(err, ErrTrace) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", time, err)
		}
	}
	if _, err := read(t, `{"timestamp": 0, "input_length": 1e30, "output_length": 5, "hash_ids": [0]}`, 512); err == nil || !strings.Contains(err.Error(), `"input_length": 1e30 is too large`) {
		t.Errorf("a huge prompt: %v", err)
	}
}

// TestSpan: what a trace lasts, and how many of its lines are not in their order.
func TestSpan(t *testing.T) {
	var text strings.Builder
	for _, at := range []int{500, 9000, 20, 30, 9000} {
		fmt.Fprintf(&text, `{"timestamp": %d, "input_length": 512, "output_length": 5, "hash_ids": [0]}`+"\n", at)
	}
	s, err := Summarize(strings.NewReader(text.String()), "t", Form{BlockTokens: 512}, 0)
	if err != nil || s.Late != 2 || s.Span != 8980*time.Millisecond || s.Untimed != 0 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestSummarize(t *testing.T) {
	text := strings.Repeat(`{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}`+"\n", 3) + "bad\n"
	s, err := Summarize(strings.NewReader(text), "t", Form{BlockTokens: 512}, 2)
	if want := (Summary{Requests: 2, Tokens: 1400, Blocks: 4}); err != nil || s != want {
		t.Errorf("first two: %+v, %v, want %+v", s, err, want)
	}
	if _, err := Summarize(strings.NewReader(text), "t", Form{BlockTokens: 512}, 0); !errors.Is(err, ErrTrace) {
		t.Errorf("bad line: error %v", err)
	}
}

func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}`))
	f.Add([]byte(`{"timestamp": 0, "input_length": 1500, "output_length": 5, "hash_ids": [0, 1]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for req, err := range Requests(bytes.NewReader(text), "f", Form{BlockTokens: 512}) {
			if err != nil {
				if !errors.Is(err, ErrTrace) {
					t.Fatal(err)
				}
				continue
			}
			// A partial block at the end has an id or none.
			if n := len(req.BlockIDs); n != req.InputTokens/512 && n != (req.InputTokens+511)/512 {
				t.Fatal(fmt.Sprint(n, " blocks for ", req.InputTokens))
			}
		}
	})
}
