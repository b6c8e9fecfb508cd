package cli

import (
	"bytes"
	"testing"
)

func TestProgressWithoutTerminal(t *testing.T) {
	var b bytes.Buffer
	p := NewProgress(&b, "playing", 10)
	for range 10 {
		p.Step(func() string { return "well" })
	}
	p.End()
	if b.Len() > 0 {
		t.Errorf("quick work printed %q", b.String())
	}
	p.Begin("the last of them")
	if got := b.String(); got != "playing: the last of them\n" {
		t.Errorf("a step printed %q", got)
	}
	b.Reset()
	p.last = p.last.Add(-PlainInterval)
	p.Step(func() string { return "well" })
	if got := b.String(); got != "playing: 11 of 10, well\n" {
		t.Errorf("slow work printed %q", got)
	}
}
