package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

const said = `{"Action":"start","Package":"m/a"}
{"Action":"run","Package":"m/a","Test":"TestGood"}
{"Action":"output","Package":"m/a","Test":"TestGood","Output":"good says\n"}
{"Action":"pass","Package":"m/a","Test":"TestGood","Elapsed":1.5}
{"Action":"run","Package":"m/a","Test":"TestBad"}
{"Action":"output","Package":"m/a","Test":"TestBad/part","Output":"the daemon does not end\n"}
{"Action":"fail","Package":"m/a","Test":"TestBad/part","Elapsed":2}
{"Action":"fail","Package":"m/a","Test":"TestBad","Elapsed":2}
{"Action":"output","Package":"m/a","Output":"FAIL\n"}
{"Action":"fail","Package":"m/a","Elapsed":3.5}
{"ImportPath":"m/b","Action":"build-output","Output":"b.go:1: syntax error\n"}
{"Action":"fail","Package":"m/b","Elapsed":0}
`

// TestCollect: what failed is printed, what passed is not, and both are counted.
func TestCollect(t *testing.T) {
	var out bytes.Buffer
	r := collect(strings.NewReader(said), &out)
	if want := "the daemon does not end\nFAIL\nb.go:1: syntax error\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	if !r.failed[testKey{"m/a", "TestBad"}] || len(r.failed) != 1 || r.ended != 2 || len(r.broken) != 2 || r.elapsed[testKey{"m/a", "TestGood"}] != 1.5 {
		t.Errorf("%+v", r)
	}
	red, seconds := judge(r)
	if !slices.Equal(red, []string{"m/b"}) || len(seconds) != 1 || seconds[0].name != "TestBad" {
		t.Errorf("red %v, again %v", red, seconds)
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
		{in("remote"), "context deadline exceeded", true},
		{in("browser"), "the daemon did not start: it took too long", true},
		{in("remote"), "3 chunks, want 4", false},
		{in("remote"), "context deadline exceeded; 3 chunks are lost", false},
		{in("redis"), "timed out: wrong bytes", false},
		{in("python"), "panic: test timed out after 10m0s", false},
		{in("history"), "context deadline exceeded", false},
		{in("kills"), "the daemon does not end", false},
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
