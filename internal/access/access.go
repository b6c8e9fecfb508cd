package access

import (
	"slices"
	"strings"

	"github.com/kvstored/kvstored/internal/base"
)

// Rights is what may be done, a set of bits. They are those of the protocol.
type Rights uint8

// The rights.
const (
	Read Rights = 1 << iota
	Write
	Admin

	All = Read | Write | Admin
)

// Rule gives rights to users, either for spaces, by a pattern of their models, or
// for the values of a front end.
type Rule struct {
	UIDs   []uint32 // none, of a front end only: the connections that have no user id
	Match  string   // a pattern of package glob; "" in a rule for a front end
	Front  string   // "resp"; "" in a rule for models
	Rights Rights
	Map    bool // the users may map the arena
}

// Options of a Policy.
type Options struct {
	Own    uint32   // the user that runs the daemon
	Allow  []uint32 // the users that may connect, where there are no rules; none = all
	Admins []uint32 // the users that may administer, where there are no rules
	Rules  []Rule
	Fronts []string // the front ends whose values are, or come, into the arena
}

// Policy says which rights a user has. It is never changed, so that it needs no
// lock, and two that are the same pointer decide the same. The nil Policy is that
// of the zero Options.
type Policy struct {
	o Options
}

// New makes a Policy. It keeps the slices of o.
func New(o Options) *Policy { return &Policy{o} }

// options are those of p.
func (p *Policy) options() *Options {
	if p == nil {
		return new(Options)
	}
	return &p.o
}

// Ruled reports whether there are rules.
func (p *Policy) Ruled() bool { return len(p.options().Rules) > 0 }

// unbound reports whether a user may do everything under any rules.
func (o *Options) unbound(uid uint32) bool { return uid == 0 || uid == o.Own }

// listed is what a user may do where there are no rules.
func (o *Options) listed(uid uint32) Rights {
	switch {
	case o.unbound(uid), slices.Contains(o.Admins, uid):
		return All
	case len(o.Allow) == 0, slices.Contains(o.Allow, uid):
		return Read | Write
	}
	return 0
}

// Model is what a user may do with the spaces of a model.
func (p *Policy) Model(uid uint32, model string) Rights {
	o := p.options()
	if !p.Ruled() || o.unbound(uid) {
		return o.listed(uid)
	}
	for i := range o.Rules {
		r := &o.Rules[i]
		if r.Front == "" && slices.Contains(r.UIDs, uid) && base.Glob(r.Match, model) {
			return r.Rights
		}
	}
	return 0
}

// Front is what a user may do with the values of a front end. Without rules that
// is everything for each user that may connect, as of a client without a user id.
func (p *Policy) Front(uid uint32, front string) Rights {
	o := p.options()
	switch {
	case o.unbound(uid), !p.Ruled() && o.listed(uid) != 0:
		return All
	case !p.Ruled():
		return 0
	}
	return o.front(front, func(r *Rule) bool { return slices.Contains(r.UIDs, uid) })
}

// NoUser is what connections without a user id may do with the values of a front
// end.
func (p *Policy) NoUser(front string) Rights {
	if !p.Ruled() {
		return All
	}
	return p.options().front(front, func(r *Rule) bool { return len(r.UIDs) == 0 })
}

// front is the rights in the first rule for a front end that who accepts.
func (o *Options) front(front string, who func(*Rule) bool) Rights {
	for i := range o.Rules {
		if r := &o.Rules[i]; r.Front == front && who(r) {
			return r.Rights
		}
	}
	return 0
}

// Somewhere is what a user may do with the spaces of one model or another; 0 for
// a user that may not connect.
func (p *Policy) Somewhere(uid uint32) (sum Rights) {
	o := p.options()
	if !p.Ruled() || o.unbound(uid) {
		return o.listed(uid)
	}
	for i := range o.Rules {
		if r := &o.Rules[i]; r.Front == "" && slices.Contains(r.UIDs, uid) {
			sum |= r.Rights
		}
	}
	return sum
}

// Everywhere is the rights of a user to every space there can be, of any model,
// the values of front ends included.
func (p *Policy) Everywhere(uid uint32) (all Rights) {
	for _, right := range []Rights{Read, Write, Admin} {
		if _, lacks := p.Gap(uid, right); !lacks {
			all |= right
		}
	}
	return all
}

// every reports whether a pattern matches every name.
func every(pattern string) bool { return pattern != "" && strings.Trim(pattern, "*") == "" }

// MayMap reports whether a user may map the arena, in which the chunks of all
// spaces lie: a rule of its says so, and it may read everything.
func (p *Policy) MayMap(uid uint32) bool {
	o := p.options()
	if !p.Ruled() || o.unbound(uid) {
		return o.listed(uid)&Read != 0
	}
	return o.maps(uid) && p.Everywhere(uid)&Read != 0
}

// maps reports whether a rule of a user says that it maps the arena.
func (o *Options) maps(uid uint32) bool {
	return slices.ContainsFunc(o.Rules, func(r Rule) bool { return r.Map && slices.Contains(r.UIDs, uid) })
}

// Gap is spaces for which a user lacks a right.
type Gap struct {
	Rule  int    // the rule that decides about them; -1: none does
	Match string // those of the models that match and that no earlier rule decides about
	Front string // or the values of this front end
}

// Gap finds spaces, of those there can be, for which a user lacks a right that is
// wanted; ok is false where there are none.
func (p *Policy) Gap(uid uint32, want Rights) (g Gap, ok bool) {
	o := p.options()
	if !p.Ruled() || o.unbound(uid) {
		return Gap{Rule: -1, Match: "*"}, o.listed(uid)&want != want
	}
	for i := range o.Rules {
		r := &o.Rules[i]
		if r.Front != "" || !slices.Contains(r.UIDs, uid) {
			continue
		}
		if r.Rights&want != want {
			return Gap{Rule: i, Match: r.Match}, true
		}
		if every(r.Match) { // a model that no rule before it matches comes to this one
			return p.frontGap(uid, want)
		}
	}
	return Gap{Rule: -1, Match: "*"}, true
}

// frontGap finds the front end for whose values a user lacks a right.
func (p *Policy) frontGap(uid uint32, want Rights) (g Gap, ok bool) {
	for _, front := range p.options().Fronts {
		if p.Front(uid, front)&want != want {
			rule := slices.IndexFunc(p.options().Rules, func(r Rule) bool { return r.Front == front && slices.Contains(r.UIDs, uid) })
			return Gap{Rule: rule, Front: front}, true
		}
	}
	return Gap{}, false
}

// String names rights as rules do.
func (r Rights) String() string {
	var words []string
	for i, word := range []string{"read", "write", "admin"} {
		if r&(1<<i) != 0 {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return "no"
	}
	return strings.Join(words, " and ")
}

// Peer is the user at the other end of a front end's connection. It belongs to
// the connection's goroutine.
type Peer interface {
	// Rights are what the peer may do with the values of the front end, by the
	// policy of this moment.
	Rights() Rights
}
