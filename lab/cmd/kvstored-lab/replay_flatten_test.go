package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFlatten: sessions become one request a line in the order of time, with ids that
// stand for the same blocks in all of them; a trace of requests is as it was.
func TestFlatten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	write := func(lines ...string) {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(
		`{"block_size":256,"start":1,"requests":[{"t":0,"in":1024,"out":7,"hash_ids":[1,2,3,4]},{"t":9,"in":1536,"hash_ids":[1,2,3,4,5,6]}]}`,
		`{"block_size":256,"start":2,"requests":[{"t":0.5,"in":600,"hash_ids":[1,2,3]}]}`,
	)
	flat := `{"timestamp":1000,"input_length":1024,"output_length":7,"hash_ids":[0,1]}
{"timestamp":2500,"input_length":600,"output_length":0,"hash_ids":[3,4]}
{"timestamp":10000,"input_length":1536,"output_length":0,"hash_ids":[0,1,2]}
`
	if code, out, errs := lab(t, "replay", "--flatten", "--trace", path); code != exitOK || out != flat {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	write(strings.Split(strings.TrimSuffix(flat, "\n"), "\n")...)
	if code, out, errs := lab(t, "replay", "--flatten", "--trace", path, "--limit", "2"); code != exitOK || out != strings.Join(strings.SplitAfter(flat, "\n")[:2], "") {
		t.Errorf("exit code %d, %s\n%s", code, errs, out)
	}
	write(`{"timestamp":0}`)
	for _, args := range [][]string{{}, {"--block-size", "0"}, {"--limit", "-1"}, {"--simulate"}, {"--trace", path + "x"}} {
		if code, out, errs := lab(t, append([]string{"replay", "--flatten", "--trace", path}, args...)...); code == exitOK || out != "" || errs == "" {
			t.Errorf("%v: exit code %d, %q, %q", args, code, out, errs)
		}
	}
}
