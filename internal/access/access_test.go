package access

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Without rules the lists count, as they do for those who may connect.
func TestWithoutRules(t *testing.T) {
	const a, b, c, own = 1001, 1002, 1003, 990
	const user = Read | Write
	for _, tc := range []struct {
		allow, admins []uint32
		uid           uint32
		want          Rights
	}{
		{nil, nil, 0, All},
		{nil, nil, own, All},
		{nil, nil, a, user},
		{[]uint32{a}, nil, a, user},
		{[]uint32{a}, nil, b, 0},
		{[]uint32{a}, nil, 0, All},
		{[]uint32{a}, []uint32{b}, b, All},
		{[]uint32{a}, []uint32{b}, c, 0},
		{nil, []uint32{b}, a, user},
		{nil, []uint32{b}, 0, All},
	} {
		p := New(Options{Own: own, Allow: tc.allow, Admins: tc.admins})
		if got := [...]Rights{p.Model(tc.uid, "m"), p.Somewhere(tc.uid), p.Everywhere(tc.uid)}; got != [...]Rights{tc.want, tc.want, tc.want} {
			t.Errorf("allow %d, admins %d, uid %d: %s, want %s", tc.allow, tc.admins, tc.uid, got, tc.want)
		}
		if p.MayMap(tc.uid) != (tc.want != 0) || (p.Front(tc.uid, "resp") == All) != (tc.want != 0) || p.NoUser("resp") != All {
			t.Errorf("allow %d, admins %d, uid %d: maps %t, front end %s", tc.allow, tc.admins, tc.uid, p.MayMap(tc.uid), p.Front(tc.uid, "resp"))
		}
	}
	var none *Policy
	if none.Model(5, "m") != user || none.Model(0, "m") != All || !none.MayMap(5) || none.Ruled() {
		t.Error("no policy is not the policy without rules")
	}
}

var compiled = map[string]*regexp.Regexp{}

// naive is what a user may do with a model, found another way: by regular
// expressions, rule after rule.
func naive(rules []Rule, uid uint32, model string) Rights {
	if uid == 0 {
		return All
	}
	for _, r := range rules {
		re := "^(?s:" + strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(regexp.QuoteMeta(r.Match)) + ")$"
		if compiled[re] == nil {
			compiled[re] = regexp.MustCompile(re)
		}
		if slices.Contains(r.UIDs, uid) && r.Front == "" && compiled[re].MatchString(model) {
			return r.Rights
		}
	}
	return 0
}

// TestAgainstNaive plays random rules. What a user may do everywhere it may do
// with each model; a gap is one; and a mapping user reads all of them, front ends
// included.
func TestAgainstNaive(t *testing.T) {
	var models []string
	for _, a := range []string{"a", "b", "ab"} {
		for _, b := range []string{"", "-8b", "-70b", "x"} {
			models = append(models, a+b)
		}
	}
	patterns := []string{"*", "*", "*", "**", "a*", "*b", "a-*", "?", "??", "?*", "a", "ab-70b", "nothing"}
	random := rand.New(rand.NewPCG(3, 4))
	mapped := 0
	for range 800 {
		o := Options{Own: 99}
		for range 1 + random.IntN(5) {
			r := Rule{Match: patterns[random.IntN(len(patterns))], Rights: Rights(random.IntN(8)), Map: random.IntN(3) == 0}
			if random.IntN(2) == 0 {
				r.Rights |= Read
			}
			if random.IntN(4) == 0 {
				r.Match, r.Front = "", []string{"resp", "other"}[random.IntN(2)]
			}
			for uid := range uint32(3) {
				if random.IntN(2) == 0 {
					r.UIDs = append(r.UIDs, uid)
				}
			}
			o.Rules = append(o.Rules, r)
		}
		if random.IntN(2) == 0 {
			o.Fronts = []string{"resp", "other"}[:1+random.IntN(2)]
		}
		p := New(o)
		for uid := range uint32(4) {
			all, sum := All, Rights(0)
			for _, m := range models {
				want := naive(o.Rules, uid, m)
				if got := p.Model(uid, m); got != want {
					t.Fatalf("%+v: user %d, model %s: %s, want %s", o.Rules, uid, m, got, want)
				}
				all, sum = all&want, sum|want
			}
			for _, f := range o.Fronts {
				all &= p.Front(uid, f)
			}
			every := p.Everywhere(uid)
			if every&^all != 0 || sum&^p.Somewhere(uid) != 0 {
				t.Fatalf("%+v: user %d: everywhere %s of %s, somewhere %s of %s", o, uid, every, all, p.Somewhere(uid), sum)
			}
			gap, ok := p.Gap(uid, Read)
			if ok != (every&Read == 0) || ok && gap.Rule >= 0 && o.Rules[gap.Rule].Rights&Read != 0 {
				t.Fatalf("%+v: user %d: gap %+v, %t", o, uid, gap, ok)
			}
			if p.MayMap(uid) {
				mapped++
				if all&Read == 0 {
					t.Fatalf("%+v: user %d maps and does not read all", o, uid)
				}
			}
		}
	}
	if mapped < 800+50 { // root always does
		t.Errorf("only %d of the users could map", mapped)
	}
}

func TestRightsText(t *testing.T) {
	if got := fmt.Sprint(Rights(0), Read, Read|Admin, All); got != "no read read and admin read and write and admin" {
		t.Error(got)
	}
}
