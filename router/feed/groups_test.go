package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/router/index"
)

// of is an event of blocks of a group.
func of(e list, group int, kind string, window any) list {
	if e[0] == "BlockRemoved" {
		return append(append(list{}, e...), group)
	}
	return append(append(list{}, e...), nil, nil, group, kind, window)
}

// Of a hybrid model a prefix counts where all groups have what they need.
func TestGroups(t *testing.T) {
	r := newRig(t, Options{})
	r.m.Groups = []index.Group{{}, {Kind: index.Window, Tokens: 3}, {Kind: index.State}}
	window := func(e list) list { return of(e, 1, "sliding_window", 3) }
	state := func(e list) list { return of(e, 2, "mamba", nil) }
	r.live(0, of(stored(nil, 1, 2, 3, 4, 5, 6), 0, "full_attention", nil))
	r.want(0, 1, 2, 3, 4, 5, 6)
	r.live(1, window(stored(nil, 1, 2, 3)), window(stored(4, 5, 6)))
	r.want(0, 1, 2, 3, 4, 5, 6)
	r.live(2, state(stored(1, 2)), state(stored(4, 5)), state(stored(5, 6)))
	r.want(6, 1, 2, 3, 4, 5, 6)
	r.want(2, 1, 2, 3, 4)
	r.live(3, window(removed(5)))
	r.want(2, 1, 2, 3, 4, 5, 6) // a window of 3 tokens at 6 needs blocks 5 and 6
	r.live(4, removed(2))       // of group 0, as none is said
	r.want(0, 1, 2, 3, 4, 5, 6)

	for want, e := range map[string]list{
		`mamba of 0 tokens, and "window 3"`:       of(stored(nil, 1), 1, "mamba", nil),
		"sliding_window of 4 tokens":              of(stored(nil, 1), 1, "sliding_window", 4),
		`full_attention of 0 tokens, and "state"`: of(stored(nil, 1), 2, "full_attention", nil),
	} {
		next, _ := r.p.Next()
		if _, err := r.p.Live(next, batch(e)); !errors.Is(err, ErrGroup) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	passed, _ := r.p.Stats()
	next, _ := r.p.Next()
	r.live(next, of(stored(nil, 1), 3, "full_attention", nil), of(stored(nil, 1), 0, "cross_attention", nil))
	if s, _ := r.p.Stats(); s.Passed != passed.Passed+2 {
		t.Errorf("%d events of groups that are not counted are passed over, want 2", s.Passed-passed.Passed)
	}
}

func TestParseGroups(t *testing.T) {
	all, err := ParseGroups([]string{"full", "window 1024", "local 8192", "state"})
	if err != nil || len(all) != 4 || all[1] != (index.Group{Kind: index.Window, Tokens: 1024}) {
		t.Fatalf("%v, %v", all, err)
	}
	for text, want := range map[string]string{
		"window": "window of 0 tokens", "window 0": "window of 0", "state 4": "state of 4", "swa 4": "write full", "window x": "write full",
		"Full": "write full", "state": "none of 1 groups is full", "window -1": "window of -1", "": "write full",
	} {
		if _, err := ParseGroups([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
