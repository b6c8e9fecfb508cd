package config

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/access"
)

// accessCases are files and the problems in them, one a line.
var accessCases = []struct{ name, file, want string }{
	{"no rules", "access: []\n", ""},
	{"one tenant each", `
access:
- {uids: [1001], match: "a-*", rights: [read, write]}
- {uids: [1002, 1003], match: "b-*", rights: [read]}
- {uids: [1003], match: "*", rights: [none]}
`, ""},
	{"one that maps", `access: [{uids: [7], match: "*", rights: [read, write], map: true}]`, ""},
	{"one that maps, by several rules", `access: [{uids: [7], match: "a", rights: [read], map: true}, {uids: [7], match: "**", rights: [read]}]`, ""},
	{
		"the shape of a rule", `
access:
- {}
- {uids: [1], match: "", rights: [read]}
- {match: x, rights: [read]}
- {uids: [1], match: x}
- {uids: [1], match: y, front: resp, rights: [read]}
`, `
f.yaml:3:3: access[0].match: is empty and matches no model; write a name, a pattern such as "llama-*", or front: resp for what Redis clients store
f.yaml:3:3: access[0].rights: is empty; list read, write or admin, or write [none]
f.yaml:4:22: access[1].match: is empty and matches no model; write a name, a pattern such as "llama-*", or front: resp for what Redis clients store
f.yaml:5:3: access[2].uids: is empty and names no user; list user ids, such as [1000]
f.yaml:6:3: access[3].rights: is empty; list read, write or admin, or write [none]
f.yaml:7:32: access[4].front: is beside match; what a front end's clients store has no model, so write a rule for each`,
	},
	{
		"words and numbers", `
access:
- {uids: [root], match: x, rights: [raed]}
- {uids: 1000, match: x, rights: read}
- {uids: [-1], match: 8, rights: [read], map: yes}
- {user: [1], match: x, rights: [read]}
`, `
f.yaml:3:11: access[0].uids[0]: want a whole number, not the string "root"
f.yaml:3:37: access[0].rights[0]: want read, write, admin or none, not "raed"
f.yaml:4:10: access[1].uids: want a list, such as [1000]
f.yaml:4:34: access[1].rights: want a list, such as [a, b]
f.yaml:5:11: access[2].uids[0]: want a whole number from 0 to 4294967295, not "-1"
f.yaml:5:23: access[2].match: want a string; put quotes around 8
f.yaml:5:47: access[2].map: want true or false, not the string "yes"
f.yaml:6:4: access[3].user: unknown key; known here: uids, match, front, rights, map`,
	},
	{
		"users and rights that cannot be", `
access:
- {uids: [0, 5, 5, 4294967295], match: x, rights: [read, read, none]}
- {uids: [5], front: redis, rights: [read]}
- {uids: [6], match: "*", rights: [write], map: true}
- {uids: [7], front: lm, rights: [read]}
`, `
f.yaml:3:11: access[0].uids[0]: root may do everything, whatever the rules say; remove it
f.yaml:3:17: access[0].uids[2]: 5 is in the list already; remove one
f.yaml:3:20: access[0].uids[3]: 4294967295 is no user id; remove it
f.yaml:3:58: access[0].rights[1]: read is in the list already; remove one
f.yaml:3:64: access[0].rights[2]: none is beside other rights; write it alone, or remove it
f.yaml:4:22: access[1].front: want resp, not "redis"
f.yaml:5:49: access[2].map: these users would read all that is in the arena, and the rule does not let them read; add read to rights, or remove map
f.yaml:6:22: access[3].front: want resp, not "lm"; lm:// is not spoken any more; take LMCache's plug-in or L2 adapter, or its Redis client at listen.resp`,
	},
	{
		"a rule that never counts", `
access:
- {uids: [1, 2], match: "llama-*", rights: [read]}
- {uids: [2, 3], match: "llama-3-?b", rights: [write]}
`, `
f.yaml:4:11: access[1].uids[0]: this rule never counts for 2: access[0] comes first and matches all that it does; move it up, or remove the user here`,
	},
	{
		"who may connect", `
listen: {allow_uids: [1, 2, 3], admin_uids: [9, 10]}
access:
- {uids: [1, 4, 9], match: "*", rights: [read]}
- {uids: [2], match: "*", rights: [none]}
`, `
f.yaml:2:29: listen.allow_uids[2]: 3 may connect, and no rule of access names it, so that it could do nothing; add a rule, or remove it here
f.yaml:2:46: listen.admin_uids[0]: 9 may do everything here, and by access it may not administer models that match "*" (access[0]); let both say the same
f.yaml:2:49: listen.admin_uids[1]: 10 may do everything here, and by access it may not administer models that none of its rules matches; let both say the same
f.yaml:4:14: access[0].uids[1]: listen.allow_uids does not let 4 connect; add it there, or remove it here`,
	},
	{"an administrator by both", `
listen: {allow_uids: [1], admin_uids: [9]}
access: [{uids: [9], match: "*", rights: [read, write, admin]}, {uids: [1], match: m, rights: [read]}]
`, ""},
	{"front ends", `
listen: {resp: [/r.sock, "127.0.0.1:1"]}
access:
- {front: resp, rights: [read, write]}
- {uids: [5], front: resp, rights: [read, write, admin]}
`, ""},
	{
		"front ends that are off, or reached otherwise", `
listen: {resp: ["127.0.0.1:1"]}
access:
- {uids: [5], front: resp, rights: [read]}
- {uids: [5], match: "*", rights: [read]}
`, `
f.yaml:2:17: listen.resp[0]: connections to 127.0.0.1:1 have no user id, and no rule of access is for them; add {front: resp, rights: [read, write]}, or use the path of a socket`,
	},
	{
		"a front end that is off", "access:\n- {uids: [5], front: resp, rights: [read]}\n", `
f.yaml:2:22: access[0].front: resp is off: listen.resp is empty; remove the rule, or give it an address`,
	},
	{
		"front ends twice, and for nobody", `
listen: {resp: [/r.sock]}
access: [{front: resp, rights: [read]}, {uids: [5], front: resp, rights: [none]}, {uids: [5], front: resp, rights: [read]}]
`, `
f.yaml:3:18: access[0].front: a rule without uids is for connections without a user id, over TCP, and listen.resp has no such address; list uids
f.yaml:3:91: access[2].uids[0]: this rule never counts for 5: access[1] comes first and matches all that it does; move it up, or remove the user here`,
	},
	{
		"who maps and may not read all", `
access:
- {uids: [5], match: "a-*", rights: [read], map: true}
- {uids: [6], match: "b-*", rights: [none]}
- {uids: [6, 7], match: "*", rights: [read], map: true}
- {uids: [8], match: "?*", rights: [read], map: true}
`, `
f.yaml:3:50: access[0].map: 5 would map the arena, in which the chunks of all spaces lie, and it may not read models that none of its rules matches; give it read there, or remove map
f.yaml:5:51: access[2].map: 6 would map the arena, in which the chunks of all spaces lie, and it may not read models that match "b-*" (access[1]); give it read there, or remove map
f.yaml:6:49: access[3].map: 8 would map the arena, in which the chunks of all spaces lie, and it may not read models that none of its rules matches; give it read there, or remove map`,
	},
	{
		"who maps beside a front end", `
listen: {resp: [/r.sock]}
access:
- {uids: [5, 6], match: "*", rights: [read], map: true}
- {uids: [5], front: resp, rights: [read]}
- {uids: [6], front: resp, rights: [write]}
`, `
f.yaml:4:51: access[0].map: 6 would map the arena, in which the chunks of all spaces lie, and it may not read what clients of listen.resp store (access[2]); give it read there, or remove map`,
	},
	{
		"who maps beside a front end over TCP", `
listen: {resp: ["127.0.0.1:1"]}
access:
- {uids: [5], match: "*", rights: [read], map: true}
- {front: resp, rights: [read]}
`, `
f.yaml:4:48: access[0].map: 5 would map the arena, in which the chunks of all spaces lie, and it may not read what clients of listen.resp store (no rule gives it, as {uids: [5], front: resp, rights: [read]} would); give it read there, or remove map`,
	},
	{
		"an administrator beside a front end over TCP", `
listen: {resp: ["127.0.0.1:1"], admin_uids: [6]}
access:
- {uids: [6], match: "*", rights: [admin]}
- {front: resp, rights: [read]}
`, `
f.yaml:2:46: listen.admin_uids[0]: 6 may do everything here, and by access it may not administer what clients of listen.resp store (no rule gives it, as {uids: [6], front: resp, rights: [admin]} would); let both say the same`,
	},
	{
		"what those messages advise", `
listen: {resp: ["127.0.0.1:1"], admin_uids: [6]}
access:
- {uids: [5], match: "*", rights: [read], map: true}
- {uids: [6], match: "*", rights: [admin]}
- {uids: [6], front: resp, rights: [admin]}
- {uids: [5], front: resp, rights: [read]}
- {front: resp, rights: [read]}
`, "",
	},
}

func TestAccess(t *testing.T) {
	for _, tc := range accessCases {
		t.Run(tc.name, func(t *testing.T) {
			_, err := loadText(t, tc.file)
			if got := errorText(err); got != strings.TrimPrefix(tc.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// The environment replaces all rules, and its problems are its own.
func TestAccessFromEnvironment(t *testing.T) {
	const file = `access: [{uids: [5], match: "*", rights: [read]}]`
	c, err := loadText(t, file, `KVSTORED_ACCESS=[{uids: [6], match: "m", rights: [write]}]`)
	if err != nil || len(c.Access) != 1 || c.Access[0].UIDs[0] != 6 {
		t.Errorf("%v: %+v", err, c.Access)
	}
	_, err = loadText(t, file, `KVSTORED_ACCESS=[{uids: [6], match: "m", rights: [write], map: true}]`)
	if got := errorText(err); !strings.HasPrefix(got, "KVSTORED_ACCESS: access[0].map: these users would read all") {
		t.Errorf("got %s", got)
	}
}

// The printed configuration is read back to the same.
func TestAccessPrinted(t *testing.T) {
	c, err := loadText(t, `
listen: {resp: [/r.sock, "127.0.0.1:1"]}
access:
- {uids: [5, 6], match: "a: #*", rights: [read, write], map: false}
- {front: resp, rights: [none]}
`)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := c.Print(&b); err != nil {
		t.Fatal(err)
	}
	again, err := loadText(t, b.String())
	if err != nil || len(again.Access) != 2 || again.Access[0].Match != "a: #*" || again.Access[1].Rights[0] != RightNone {
		t.Errorf("%v: %+v from\n%s", err, again.Access, b.String())
	}
}

// Policy hands all that a rule says on.
func TestPolicyOfConfig(t *testing.T) {
	c, err := loadText(t, `
listen: {resp: ["127.0.0.1:1"], allow_uids: [5]}
access:
- {uids: [5], match: "a", rights: [none]}
- {uids: [5], match: "*", rights: [read, write]}
- {front: resp, rights: [admin]}
`)
	if err != nil {
		t.Fatal(err)
	}
	p := c.Policy(99)
	if p.Model(5, "a") != 0 || p.Model(5, "b") != access.Read|access.Write || p.Model(99, "a") != access.All || p.Model(6, "b") != 0 {
		t.Errorf("models: %b %b %b %b", p.Model(5, "a"), p.Model(5, "b"), p.Model(99, "a"), p.Model(6, "b"))
	}
	if p.NoUser(FrontRESP) != access.Admin || p.Front(5, FrontRESP) != 0 {
		t.Errorf("front end: %b %b", p.NoUser(FrontRESP), p.Front(5, FrontRESP))
	}
}
