package replay

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestSessions: requests of all sessions in the order of their times, blocks
// put together from the sessions' own ids, and one number for the blocks they share.
func TestSessions(t *testing.T) {
	got, err := read(t, `{"block_size":64,"hash_id_scope":"local","tool_tokens":100,"system_tokens":156,"start":10,"requests":[`+
		`{"t":0,"type":"n","model":"a","in":300,"out":7,"hash_ids":[1,2,3,4,5]},`+
		`{"t":1.5,"type":"subagent","tool_tokens":0,"system_tokens":0,"requests":[{"t":2,"model":"a","in":128,"out":1,"hash_ids":[8,9]}]},`+
		`{"t":3,"model":"a","in":420,"out":1,"hash_ids":[1,2,3,4,5,6]},`+
		`{"t":4,"model":"b","in":256,"out":1,"hash_ids":[11,12,13,14]},`+
		`{"t":5,"model":"a","in":60,"out":1,"hash_ids":[]}]}
{"block_size":64,"tool_tokens":100,"system_tokens":156,"start":11,"requests":[`+
		`{"t":0,"model":"a","in":384,"out":1,"hash_ids":[1,2,3,4,5,6]},`+
		`{"t":9,"model":"a","in":256,"out":1,"hash_ids":[31,32,33,34]}]}
{"block_size":128,"hash_id_scope":"global","requests":[{"t":0.5,"in":256,"out":1,"hash_ids":[7,8]}]}
{"block_size":128,"hash_id_scope":"global","requests":[{"t":0.6,"in":128,"out":1,"hash_ids":[7]}]}
`, 128)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range got {
		out = append(out, fmt.Sprint(r.Line, r.Session, r.Millis, r.InputTokens, r.OutputTokens, r.BlockIDs))
	}
	want := []string{ // numbers are given in the order of the lines
		"3 4 500 256 1 [10 11]", "4 5 600 128 1 [10]",
		"1 1 10000 300 7 [0 1 2]", "2 3 11000 384 1 [0 1 7]", "1 1 13000 384 1 [0 1 4]", "1 2 13500 128 1 [3]",
		"1 1 14000 256 1 [5 6]", "2 3 20000 256 1 [8 9]",
	}
	if !slices.Equal(out, want) {
		t.Errorf("read\n%s\nwant\n%s", strings.Join(out, "\n"), strings.Join(want, "\n"))
	}
}

// TestBadSessions: each bad line is named, with the request in it, and the
// lines around it still count.
func TestBadSessions(t *testing.T) {
	const good = `{"block_size":64,"requests":[{"t":0,"in":64,"out":1,"hash_ids":[1]}]}` + "\n"
	turn := func(s string) string {
		return `{"block_size":64,"requests":[{"t":0,"in":64,"hash_ids":[1]},` + s + `]}`
	}
	for what, c := range map[string]struct{ line, says string }{
		"a request":           {`{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0]}`, "requests"},
		"cut":                 {`{"block_size":64,"requests":[{"t":0,`, "JSON"},
		"no block size":       {`{"requests":[]}`, "block_size"},
		"blocks too large":    {`{"block_size":1024,"requests":[]}`, "--block-size"},
		"blocks do not fit":   {`{"block_size":100,"requests":[]}`, "--block-size"},
		"an unknown scope":    {`{"block_size":64,"hash_id_scope":"galaxy","requests":[]}`, "hash_id_scope"},
		"a negative start":    {`{"block_size":64,"start":-1,"requests":[]}`, "start"},
		"text for a number":   {`{"block_size":"64","requests":[]}`, "block_size"},
		"negative tools":      {`{"block_size":64,"tool_tokens":-1,"requests":[]}`, "tool_tokens"},
		"no time":             {turn(`{"in":64,"hash_ids":[1]}`), `request 2: "t"`},
		"negative time":       {turn(`{"t":-2,"in":64,"hash_ids":[1]}`), "request 2: t -2"},
		"no length":           {turn(`{"t":1,"hash_ids":[1]}`), `request 2: "in"`},
		"no ids":              {turn(`{"t":1,"in":64}`), `request 2: "hash_ids"`},
		"too few ids":         {turn(`{"t":1,"in":128,"hash_ids":[1]}`), "request 2: 1 hash_ids"},
		"too many ids":        {turn(`{"t":1,"in":64,"hash_ids":[1,2]}`), "request 2: 2 hash_ids"},
		"negative tokens":     {turn(`{"t":1,"in":-1,"hash_ids":[]}`), "request 2: in -1"},
		"a sub-agent's fault": {turn(`{"t":1,"requests":[{"t":0,"in":1,"hash_ids":[]},{"in":1}]}`), `request 2: request 2: "t"`},
		"sub-agents too deep": {turn(strings.Repeat(`{"t":1,"requests":[`, 12) + strings.Repeat(`]}`, 12)), "sub-agents"},
	} {
		n := 0
		var failed error
		for req, err := range Lines(strings.NewReader(good+c.line+"\n"+good), "t.jsonl", Form{BlockTokens: 512}) {
			switch {
			case err == nil:
				n++
			case req.Line == 2 && errors.Is(err, ErrTrace):
				failed = err
			default:
				t.Errorf("%s: line %d: %v", what, req.Line, err)
			}
		}
		if failed == nil || !strings.Contains(failed.Error(), "t.jsonl:2: ") || !strings.Contains(failed.Error(), c.says) || n != 2 {
			t.Errorf("%s: error %v, want one about t.jsonl:2 and %q; %d requests, want 2", what, failed, c.says, n)
		}
	}
	if got, err := read(t, "\uFEFF\n"+good+"\n"+good, 512); err != nil || len(got) != 2 {
		t.Errorf("sessions among blank lines: %d requests, %v", len(got), err)
	}
	request := `{"timestamp": 0, "input_length": 512, "output_length": 5, "hash_ids": [0]}` + "\n"
	if _, err := read(t, request+good, 512); err == nil || !strings.Contains(err.Error(), "t.jsonl:2: a session") {
		t.Errorf("a session in a trace of requests: %v", err)
	}
}

func FuzzSessions(f *testing.F) {
	f.Add([]byte(`{"block_size":64,"tool_tokens":64,"requests":[{"t":0,"in":700,"out":5,"hash_ids":[1,2,3,4,5,6,7,8,9,10,11]}]}`))
	f.Add([]byte(`{"block_size":256,"requests":[{"t":0,"requests":[{"t":1,"in":300,"hash_ids":[1]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		last := int64(0)
		for req, err := range Lines(bytes.NewReader(append([]byte(`{"block_size":64,"requests":[]}`+"\n"), text...)), "f", Form{BlockTokens: 512}) {
			if err != nil {
				if !errors.Is(err, ErrTrace) {
					t.Fatal(err)
				}
				continue
			}
			if n := len(req.BlockIDs); n*512 < req.InputTokens || (n-1)*512 >= req.InputTokens || req.Session == 0 || req.Millis < last {
				t.Fatal(fmt.Sprint(n, " blocks for ", req.InputTokens, " at ", req.Millis, " after ", last))
			}
			last = req.Millis
		}
	})
}
