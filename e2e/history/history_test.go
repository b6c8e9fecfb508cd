package history

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// scene is what happens to one key, moment by moment.
type scene struct{ *history }

var scened = key.Hash{1}

func (s scene) put(v version, begin, end moment, how outcome) {
	_ = s.writing(scened, v, begin, 0)
	_ = s.wrote(scened, v, end, how)
}

func (s scene) delete(begin, end moment, ok bool) {
	s.deleting([]key.Hash{scened}, begin)
	s.deleted([]key.Hash{scened}, begin, end, ok)
}

func (s scene) see(v version, begin, end moment) {
	b := make([]byte, 100)
	fill(b, scened, v)
	s.read(scened, b, begin, end)
}

// end stores a version that may become 10 old.
func (s scene) end(v version, begin, end moment, how outcome) {
	_ = s.writing(scened, v, begin, 10)
	_ = s.wrote(scened, v, end, how)
}

// lookup finds the key or not.
func (s scene) lookup(n int) {
	s.missing([]key.Hash{scened}, s.musts([]key.Hash{scened}), n, "lookup")
}

// Every rule has a scene that breaks it, and one beside it that only looks so.
func TestRules(t *testing.T) {
	var broken []promise
	for name, tc := range map[string]struct {
		play func(scene)
		want []promise
	}{
		"a value is read": {func(s scene) { s.put(1, 1, 2, stored); s.see(1, 3, 4) }, nil},
		"while it is stored": {func(s scene) {
			_ = s.writing(scened, 1, 1, 0)
			s.see(1, 2, 3)
			_ = s.wrote(scened, 1, 4, stored)
		}, nil},
		"nobody knows whether it was stored": {func(s scene) { s.put(1, 1, never, unknown); s.see(1, 3, 4) }, nil},
		"never written":                      {func(s scene) { s.see(1, 3, 4) }, []promise{wrongBytes}},
		"written later":                      {func(s scene) { s.put(1, 5, 6, stored); s.see(1, 3, 4) }, []promise{wrongBytes}},
		"refused":                            {func(s scene) { s.put(1, 1, 2, refused); s.see(1, 3, 4) }, []promise{wrongBytes}},
		"another key's": {func(s scene) {
			b := make([]byte, 100)
			fill(b, key.Hash{2}, 1)
			s.put(1, 1, 2, stored)
			s.read(scened, b, 3, 4)
		}, []promise{wrongBytes}},
		"torn": {func(s scene) {
			b := make([]byte, 100)
			fill(b, scened, 1)
			b[99] ^= 1
			s.put(1, 1, 2, stored)
			s.read(scened, b, 3, 4)
		}, []promise{wrongBytes}},

		"deleted":                       {func(s scene) { s.put(1, 1, 2, stored); s.delete(3, 4, true); s.see(1, 5, 6) }, []promise{undeleted}},
		"deleted, with an error":        {func(s scene) { s.put(1, 1, 2, stored); s.delete(3, 4, false); s.see(1, 5, 6) }, nil},
		"deleted while it is read":      {func(s scene) { s.put(1, 1, 2, stored); s.delete(3, 5, true); s.see(1, 4, 6) }, nil},
		"deleted while it was stored":   {func(s scene) { s.put(1, 1, 4, stored); s.delete(3, 5, true); s.see(1, 6, 7) }, nil},
		"deleted, and may come yet":     {func(s scene) { s.put(1, 1, never, unknown); s.delete(3, 4, true); s.see(1, 5, 6) }, nil},
		"deleted after the daemon died": {func(s scene) { s.put(1, 1, never, unknown); s.restarted(2); s.delete(3, 4, true); s.see(1, 5, 6) }, []promise{undeleted}},

		"an older one after a newer one was stored": {func(s scene) { s.put(1, 1, 2, stored); s.put(2, 3, 4, stored); s.see(1, 5, 6) }, []promise{twoValues}},
		"the newer one":              {func(s scene) { s.put(1, 1, 2, stored); s.put(2, 3, 4, stored); s.see(2, 5, 6) }, nil},
		"either of two side by side": {func(s scene) { s.put(1, 1, 4, stored); s.put(2, 2, 3, stored); s.see(1, 5, 6) }, nil},
		"both of two side by side": {func(s scene) {
			s.put(1, 1, 4, stored)
			s.put(2, 2, 3, stored)
			s.see(1, 5, 6)
			s.see(2, 7, 8)
		}, []promise{twoValues}},
		"an older one after nobody knows": {func(s scene) { s.put(1, 1, 2, stored); s.put(2, 3, 4, unknown); s.see(1, 5, 6) }, nil},

		"flushed and there":   {func(s scene) { s.put(1, 1, 2, stored); s.promised(unflushed, 3); s.lookup(1) }, nil},
		"flushed and missing": {func(s scene) { s.put(1, 1, 2, stored); s.promised(unflushed, 3); s.restarted(5); s.lookup(0) }, []promise{unflushed}},
		"flushed and deleted": {func(s scene) { s.put(1, 1, 2, stored); s.promised(unflushed, 3); s.delete(4, 5, false); s.lookup(0) }, nil},
		"deleted and flushed": {func(s scene) { s.put(1, 1, 2, stored); s.delete(3, 4, true); s.promised(unflushed, 5); s.lookup(0) }, nil},
		"stored while deleted": {func(s scene) {
			s.deleting([]key.Hash{scened}, 1)
			s.put(1, 2, 3, stored)
			s.deleted([]key.Hash{scened}, 1, 4, false)
			s.promised(unflushed, 5)
			s.lookup(0)
		}, nil},
		"stored while flushed":  {func(s scene) { s.put(1, 1, 4, stored); s.promised(unflushed, 3); s.lookup(0) }, nil},
		"lost before the flush": {func(s scene) { s.put(1, 1, 2, stored); s.restarted(3); s.promised(unflushed, 4); s.lookup(0) }, nil},
		"found on disk": {func(s scene) {
			at := s.stamp([]key.Hash{scened})
			s.put(1, 1, 2, stored)
			s.found([]key.Hash{scened}, at)
			s.lookup(0)
		}, []promise{unflushed}},
		"found on disk, and deleted": {func(s scene) {
			at := s.stamp([]key.Hash{scened})
			s.put(1, 1, 2, stored)
			s.delete(3, 4, false)
			s.found([]key.Hash{scened}, at)
			s.lookup(0)
		}, nil},

		"read before its end":   {func(s scene) { s.end(1, 1, 2, stored); s.see(1, 12, 13) }, nil},
		"read after its end":    {func(s scene) { s.end(1, 1, 2, stored); s.see(1, 13, 14) }, []promise{overdue}},
		"found before its end":  {func(s scene) { s.end(1, 1, 2, stored); s.there([]key.Hash{scened}, 1, 12, "") }, nil},
		"found after its end":   {func(s scene) { s.end(1, 1, 2, stored); s.there([]key.Hash{scened}, 1, 13, "") }, []promise{overdue}},
		"missing after its end": {func(s scene) { s.end(1, 1, 2, stored); s.there([]key.Hash{scened}, 0, 13, "") }, nil},
		"stored again since": {func(s scene) {
			s.end(1, 1, 2, stored)
			s.end(2, 11, 14, stored)
			s.there([]key.Hash{scened}, 1, 13, "")
		}, nil},
		"nobody knows since when": {func(s scene) { s.end(1, 1, never, unknown); s.there([]key.Hash{scened}, 1, 99, "") }, nil},
		"refused since": {func(s scene) {
			s.end(1, 1, 2, stored)
			s.end(2, 11, 14, refused)
			s.there([]key.Hash{scened}, 1, 13, "")
		}, []promise{overdue}},
		"flushed and past its end":  {func(s scene) { s.end(1, 1, 2, stored); s.promised(unflushed, 3); s.lookup(0) }, nil},
		"kept and missing":          {func(s scene) { s.put(1, 1, 2, stored); s.promised(unkept, 3); s.restarted(4); s.lookup(0) }, []promise{unkept}},
		"committed with the end":    {func(s scene) { s.put(1, 1, 3, stored); s.promised(unkept, 3); s.restarted(4); s.lookup(0) }, nil},
		"found, and read":           {func(s scene) { s.compared([]key.Hash{scened}, 1, 1, "") }, nil},
		"found, and not to be read": {func(s scene) { s.compared([]key.Hash{scened}, 1, 0, "") }, []promise{unread}},
		"other bytes under a lease": {func(s scene) { s.broken(scened, "") }, []promise{leaseBroken}},

		"flushed whole":              {func(s scene) { s.flushed(true) }, nil},
		"flushed, and not all of it": {func(s scene) { s.flushed(false) }, []promise{givenUp}},
	} {
		broken = append(broken, tc.want...)
		t.Run(name, func(t *testing.T) {
			s := scene{newHistory()}
			tc.play(s)
			var got []promise
			for _, v := range s.violations() {
				got = append(got, v.promise)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("found %q; want %q", got, tc.want)
			}
		})
	}
	for _, r := range rules {
		if !slices.Contains(broken, r.promise) {
			t.Errorf("no scene breaks the rule that %s", r.what)
		}
		named := func(c configuration) bool { return c.name == r.in }
		if r.in != "" && !slices.ContainsFunc(configurations, named) {
			t.Errorf("there is no configuration %s", r.in)
		}
	}
}
