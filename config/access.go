package config

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/base"
)

// Access is a rule that gives users rights: see [security](../security.md#rules). With any
// rule there is no right without one.
type Access struct {
	// User ids; [] only beside front, for TCP.
	UIDs []uint32 `yaml:"uids,flow,omitempty"`
	// The whole model name, as of spaces.
	Match string `yaml:"match,omitempty"`
	// A front end instead of match.
	Front string `yaml:"front,omitempty" oneof:"resp"`
	// Rights of these users; none stands alone.
	Rights []string `yaml:"rights,flow,omitempty" oneof:"read,write,admin,none"`
	// Let them map the arena, in which they can read everything.
	Map bool `yaml:"map,omitempty"`
}

// FrontRESP is the front end for Redis clients, the only one.
const FrontRESP = "resp"

// The rights.
const (
	RightRead  = "read"
	RightWrite = "write"
	RightAdmin = "admin"
	RightNone  = "none" // written out, so that a line that was forgotten is not a rule
)

// rightOf are the rights by their words.
var rightOf = map[string]access.Rights{RightRead: access.Read, RightWrite: access.Write, RightAdmin: access.Admin, RightNone: 0}

// Policy is who may do what. own is the user that runs the daemon.
func (c *Config) Policy(own uint32) *access.Policy {
	o := access.Options{Own: own, Allow: c.Listen.AllowUIDs, Admins: c.Listen.AdminUIDs}
	for _, a := range c.Access {
		r := access.Rule{UIDs: a.UIDs, Match: a.Match, Front: a.Front, Map: a.Map}
		for _, word := range a.Rights {
			r.Rights |= rightOf[word]
		}
		o.Rules = append(o.Rules, r)
	}
	if len(c.Listen.RESP) > 0 {
		o.Fronts = []string{FrontRESP}
	}
	return access.New(o)
}

// overTCP reports whether connections to an address of a front end have no user id.
func overTCP(addr string) bool { return !strings.HasPrefix(addr, "/") }

// access checks the rules: each by itself, then each beside those before it, then
// all beside listen, and last whether they hold at all: a user that maps the arena
// reads everything in it.
func (c *checker) access() {
	if len(c.Access) == 0 {
		return
	}
	before := len(c.errs)
	for i := range c.Access {
		c.rule(i)
	}
	if len(c.errs) > before || !c.meant("access") {
		return // what follows would only repeat it
	}
	for i := range c.Access {
		c.reached(i)
	}
	c.againstListen()
	if len(c.errs) == before {
		c.mappers()
	}
}

// rule checks one rule by itself.
func (c *checker) rule(i int) {
	r, path := &c.Access[i], fmt.Sprintf("access[%d]", i)
	switch {
	case r.Match == "" && r.Front == "":
		c.fail(path+".match", `is empty and matches no model; write a name, a pattern such as "llama-*", or front: resp for what Redis clients store`)
	case r.Match != "" && r.Front != "":
		c.fail(path+".front", "is beside match; what a front end's clients store has no model, so write a rule for each")
	case r.Front != "":
		c.oneOf(path+".front", r.Front, FrontRESP)
	case len(r.UIDs) == 0:
		c.fail(path+".uids", "is empty and names no user; list user ids, such as [1000]")
	}
	for j, uid := range r.UIDs {
		at := fmt.Sprintf("%s.uids[%d]", path, j)
		switch {
		case uid == 0:
			c.fail(at, "root may do everything, whatever the rules say; remove it")
		case uid == math.MaxUint32:
			c.fail(at, "%d is no user id; remove it", uid)
		case slices.Contains(r.UIDs[:j], uid):
			c.fail(at, "%d is in the list already; remove one", uid)
		}
	}
	c.rights(path+".rights", r.Rights)
	if r.Map && r.Front != "" {
		c.fail(path+".map", "a front end's clients map nothing; remove it, or write it in a rule with match")
	} else if r.Map && !slices.Contains(r.Rights, RightRead) {
		c.fail(path+".map", "these users would read all that is in the arena, and the rule does not let them read; add read to rights, or remove map")
	}
}

// rights checks the words of a rule.
func (c *checker) rights(path string, words []string) {
	if len(words) == 0 {
		c.fail(path, "is empty; list read, write or admin, or write [none]")
	}
	for j, word := range words {
		at := fmt.Sprintf("%s[%d]", path, j)
		_, known := rightOf[word]
		switch {
		case !known:
			c.oneOf(at, word, RightRead, RightWrite, RightAdmin, RightNone)
		case slices.Contains(words[:j], word):
			c.fail(at, "%s is in the list already; remove one", word)
		case word == RightNone && len(words) > 1:
			c.fail(at, "none is beside other rights; write it alone, or remove it")
		}
	}
}

// reached wants that a rule decides something for each of its users: an earlier
// one may match all that it does.
func (c *checker) reached(i int) {
	r := &c.Access[i]
	path := fmt.Sprintf("access[%d]", i)
	for j := range i {
		first := &c.Access[j]
		if r.Front != first.Front || r.Front == "" && !base.GlobCovers(first.Match, r.Match) {
			continue
		}
		if r.Front != "" && len(r.UIDs) == 0 && len(first.UIDs) == 0 {
			c.fail(path+".front", "access[%d] is for the same connections, and counts; remove one", j)
		}
		for k, uid := range r.UIDs {
			if slices.Contains(first.UIDs, uid) {
				c.fail(fmt.Sprintf("%s.uids[%d]", path, k), "this rule never counts for %d: access[%d] comes first and matches all that it does; move it up, or remove the user here", uid, j)
			}
		}
	}
}

// againstListen wants that access and listen agree about who may connect, and who
// may administer.
func (c *checker) againstListen() {
	l := &c.Listen
	for i := range c.Access {
		r, path := &c.Access[i], fmt.Sprintf("access[%d]", i)
		for j, uid := range r.UIDs {
			if len(l.AllowUIDs) > 0 && !slices.Contains(l.AllowUIDs, uid) && !slices.Contains(l.AdminUIDs, uid) {
				c.fail(fmt.Sprintf("%s.uids[%d]", path, j), "listen.allow_uids does not let %d connect; add it there, or remove it here", uid)
			}
		}
		if r.Front != "" {
			c.frontUse(path, r)
		}
	}
	for i, uid := range l.AllowUIDs {
		if uid != 0 && !slices.ContainsFunc(c.Access, func(r Access) bool { return slices.Contains(r.UIDs, uid) }) {
			c.fail(fmt.Sprintf("listen.allow_uids[%d]", i), "%d may connect, and no rule of access names it, so that it could do nothing; add a rule, or remove it here", uid)
		}
	}
	for i, uid := range l.AdminUIDs {
		if gap, ok := c.policyOf().Gap(uid, access.Admin); ok {
			c.fail(fmt.Sprintf("listen.admin_uids[%d]", i), "%d may do everything here, and by access it may not administer %s; let both say the same", uid, gapText(gap, uid, "admin"))
		}
	}
	c.withoutUser()
}

// policyOf is the policy of the rules alone: whose daemon it is does not count,
// for the configuration is checked by others too.
func (c *checker) policyOf() *access.Policy { return c.Policy(0) }

// frontUse wants that a front end is on, and has connections over TCP for a rule
// without user ids. A rule with them counts without a socket too: who maps the
// arena, or may do something in every space, needs its right there.
func (c *checker) frontUse(path string, r *Access) {
	switch {
	case len(c.Listen.RESP) == 0:
		c.fail(path+".front", "%s is off: listen.%s is empty; remove the rule, or give it an address", r.Front, r.Front)
	case len(r.UIDs) == 0 && !slices.ContainsFunc(c.Listen.RESP, overTCP):
		c.fail(path+".front", "a rule without uids is for connections without a user id, over TCP, and listen.%s has no such address; list uids", r.Front)
	}
}

// withoutUser wants a rule for the addresses whose connections have no user id.
func (c *checker) withoutUser() {
	if slices.ContainsFunc(c.Access, func(r Access) bool { return r.Front == FrontRESP && len(r.UIDs) == 0 }) {
		return
	}
	for i, addr := range c.Listen.RESP {
		if overTCP(addr) {
			c.fail(fmt.Sprintf("listen.resp[%d]", i), "connections to %s have no user id, and no rule of access is for them; add {front: resp, rights: [read, write]}, or use the path of a socket", addr)
		}
	}
}

// mappers wants that each user that maps the arena may read every space that can be
// in it.
func (c *checker) mappers() {
	told := map[uint32]bool{}
	for i := range c.Access {
		r := &c.Access[i]
		if !r.Map {
			continue
		}
		for _, uid := range r.UIDs {
			gap, ok := c.policyOf().Gap(uid, access.Read)
			if !ok || told[uid] {
				continue
			}
			told[uid] = true
			c.fail(fmt.Sprintf("access[%d].map", i), "%d would map the arena, in which the chunks of all spaces lie, and it may not read %s; give it read there, or remove map", uid, gapText(gap, uid, "read"))
		}
	}
}

// gapText names spaces for which a user lacks a right.
func gapText(g access.Gap, uid uint32, right string) string {
	what := fmt.Sprintf("models that match %q", g.Match)
	if g.Front != "" {
		what = "what clients of listen." + g.Front + " store"
	}
	switch {
	case g.Rule >= 0:
		return fmt.Sprintf("%s (access[%d])", what, g.Rule)
	case g.Front != "":
		return fmt.Sprintf("%s (no rule gives it, as {uids: [%d], front: %s, rights: [%s]} would)", what, uid, g.Front, right)
	}
	return "models that none of its rules matches"
}
