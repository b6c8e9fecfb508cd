package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const said = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good says\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":1.5}
{"Action":"run","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Test":"TestBad/part","Output":"    a_test.go:7: the daemon does not end\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad/part","Elapsed":2}
{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":2}
{"Action":"output","Package":"m/a","Output":"FAIL\n"}
{"Action":"fail","Package":"m/a","Elapsed":3.5}
{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"Action":"fail","Package":"m/b","Elapsed":0}
{"Action":"run","Package":"m/c","Test":"TestLate"}
{"Action":"output","Package":"m/c","Test":"TestLate","Output":"    c_test.go:7: took too long\n"}
{"Action":"fail","Package":"m/c","Test":"TestLate","Elapsed":2}
{"Action":"run","Package":"m/c","Test":"TestDies"}
{"Action":"output","Package":"m/c","Test":"TestDies","Output":"panic: nil\n"}
{"Action":"output","Package":"m/c","Test":"TestGood/rpm","Output":"    c_test.go:9: it takes root\n"}
{"Action":"skip","Package":"m/c","Test":"TestGood/rpm"}
{"Action":"fail","Package":"m/c","Elapsed":2}
`

// TestCollect: what failed is printed, what passed is not, and both are counted.
func TestCollect(t *testing.T) {
	var out bytes.Buffer
	r := collect(strings.NewReader(said), &out)
	if want := "    a_test.go:7: the daemon does not end\nFAIL\nb.go:1: syntax error\n    c_test.go:7: took too long\nm/c.TestDies has not ended:\npanic: nil\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if !r.failed[testKey{"m/a", "TestBad"}] || len(r.failed) != 2 || r.ended != 3 || len(r.broken) != 3 || !slices.Equal(r.skipped, []string{"m/c.TestGood/rpm: it takes root"}) || r.elapsed[testKey{"m/a", "TestGood"}] != 1.5 {
		t.Errorf("%+v", r)
	}
	file := filepath.Join(t.TempDir(), "skipped")
	err := errors.Join(r.noteSkipped(""), r.noteSkipped(file), r.noteSkipped(file))
	text, rerr := os.ReadFile(file)
	if want := strings.Repeat("m/c.TestGood/rpm: it takes root\n", 2); err != nil || string(text) != want {
		t.Errorf("noted %q, %v, %v; want %q", text, err, rerr, want)
	}
	red, _ := judge(r)
	if want := []string{"m/a.TestBad", "m/b", "m/c.TestDies (not ended)", "m/c.TestLate"}; !slices.Equal(red, want) {
		t.Errorf("red %v, want %v", red, want) // none is in a package that may try again
	}
}

// TestSecondTry: only a missed deadline has one, and not where bytes are at stake.
func TestSecondTry(t *testing.T) {
	in := func(pkg string) testKey { return testKey{module + "/e2e/" + pkg, "TestX"} }
	for _, tt := range []struct {
		k    testKey
		said string
		want bool
	}{
		{in("remote"), "    x_test.go:3: context deadline exceeded\n", true},
		{in("browser"), "    x_test.go:3: the daemon did not start: it took too long; its log ends with:\nserving\n    daemon.go:60: log of /tmp/x:\nserving\n", true},
		{in("python"), "    x_test.go:3: no answer\n    x_test.go:9: no answer\n", true},
		{in("remote"), "    x_test.go:3: 3 chunks, want 4\n", false},
		{in("remote"), "    x_test.go:3: 3 chunks, want 4\n    daemon.go:60: log of /tmp/x:\ncontext deadline exceeded\n", false},
		{in("remote"), "    x_test.go:3: context deadline exceeded\n    x_test.go:4: 3 chunks, want 4\n", false},
		{in("remote"), "    x_test.go:3: context deadline exceeded; 3 chunks are lost\n", false},
		{in("remote"), "    x_test.go:3: the daemon did not start: exit status 2\n", false},
		{in("remote"), "context deadline exceeded\n", false},
		{in("python"), "panic: test timed out after 10m0s", false},
		{in("redis"), "    x_test.go:3: timed out\n", false},
		{in("history"), "    x_test.go:3: context deadline exceeded\n", false},
		{in("kills"), "    x_test.go:3: the daemon does not end\n", false},
	} {
		if got := mayRetry(tt.k, tt.said); got != tt.want {
			t.Errorf("%s, which says %q: a second try %t, want %t", tt.k, tt.said, got, tt.want)
		}
	}
}

func TestFlags(t *testing.T) {
	if got := flags([]string{"-p=2", "-run=TestX", "./remote", "-count=1"}); !slices.Equal(got, []string{"-p=2"}) {
		t.Error(got)
	}
}
