package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestErrors: each kind of error has its exit code, and names its cause.
func TestErrors(t *testing.T) {
	nobody := filepath.Join(t.TempDir(), "nobody")
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"play"}, exitUsage, "play"},
		{[]string{"whatif", "--socket", nobody}, exitUnreachable, "kvstored serve"},
		{[]string{"replay", "--trace", write(t, smallTrace), "--socket", nobody}, exitUnreachable, "kvstored serve"},
		{[]string{"replay", "--trace", write(t, smallTrace), "--config", write(t, "cpu: {capacity: 1 banana}\n")}, exitConfig, "banana"},
		{[]string{"replay"}, exitUsage, "trace"},
		{[]string{"replay", "--trace", "x", "--payload-bytes", "64k"}, exitUsage, "--payload-bytes"},
		{[]string{"replay", "--trace", write(t, "{}\n")}, exitFailure, "file:1: "},
		{[]string{"replay", "--simulate", "--trace", write(t, "17\n")}, exitFailure, "file:1: want a JSON object a line, not a number"},
		{[]string{"replay", "--simulate", "--trace", write(t, `{"timestamp": "x"}`)}, exitFailure, `file:1: "timestamp": a string does not fit there`},
		{[]string{"replay", "--simulate", "--trace", write(t, "hello\n")}, exitFailure, "file:1: not a JSON object: "},
		{[]string{"replay", "--trace", nobody}, exitFailure, nobody},
	} {
		code, _, errs := lab(t, tt.args...)
		if code != tt.code || !strings.Contains(errs, tt.says) {
			t.Errorf("%v: exit code %d, want %d; %q, want %q in it", tt.args, code, tt.code, errs, tt.says)
		}
	}
}

// TestDocTrace: the trace that lab/README.md plays is in the checkout.
func TestDocTrace(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`(?m)^\./kvstored lab replay --trace lab/(simulate/.*\.jsonl) (--[^#]*[^# ])`).FindStringSubmatch(string(page))
	if m == nil {
		t.Fatal("lab/README.md has no trace to play")
	}
	serveHere(t)
	args := append([]string{"replay", "--trace", filepath.Join("..", "..", m[1])}, strings.Fields(m[2])...)
	if code, out, errs := lab(t, args...); code != exitOK || !strings.Contains(out, "every byte right") {
		t.Errorf("%v: exit code %d, %s\n%s", args, code, errs, out)
	}
}

// TestDocInvocations: the commands of the lab that the documentation calls exist, and so
// do their flags.
func TestDocInvocations(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob("../../../docs/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	below, err := filepath.Glob("../../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	pages = append(pages, below...)
	calls := 0
	for _, page := range append(pages, "../../../README.md", "../../../CONTRIBUTING.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("kvstored(?: |-)lab ([a-z]+)([^`|#\n]*)").FindAllStringSubmatch(string(text), -1) {
			calls++
			_, help, _ := lab(t, m[1], "--help")
			for _, flag := range regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(m[2], -1) {
				if !regexp.MustCompile(`(?m)^ .*` + flag + `\b`).MatchString(help) {
					t.Errorf("%s calls kvstored lab %s with %s, which it does not have", filepath.Base(page), m[1], flag)
				}
			}
		}
	}
	if calls < 10 {
		t.Errorf("only %d calls were found", calls)
	}
}
