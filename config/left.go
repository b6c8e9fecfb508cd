package config

import "regexp"

// left are keys that there were, and what to do without each. A section stands for all of
// its keys.
var left = map[string]string{
	"arena.spin":     "how long is fixed now, 50 us while the machine is idle; take it out",
	"events.publish": leftToBridge,
	"events.replay":  leftToBridge,
	"events.open":    leftToBridge,
	"events.topic":   leftToBridge,
	"events.tokens":  "tokens of chunks are not told any more; take it out",
	"listen.lm":      "lm:// is not spoken any more; take LMCache's plug-in or L2 adapter, or its Redis client at listen.resp",
	"listen.lm_open": "lm:// is not spoken any more, so that there is nothing to open; take it out",

	"arena.puts":         "engines never write the shared memory, they store through a window of their own; take it out",
	"write.min_hits":     leftToTenure,
	"spaces[].priority":  "nothing is spared by its model any more; a quota bounds the others, and clients retain what is to stay (hints); take it out",
	"prefetch.next_turn": "a prompt that was stored is not promoted any more: its next turn asks for it",

	"listen.resp_flush": "Redis clients cannot empty the store any more; kvstored forget --space does it, by the id that kvstored list spaces shows below (values of the resp front end)",

	"upgrade": "a stop and a start keep DRAM and the sockets with cpu.keep: true, where systemd or serve --keeper has them",

	"route": "the router is a program of its own; give this section to it, in a file for `kvstored-router serve`",
}

// valuesLeft are values that there were, and what came of them.
var valuesLeft = map[string]string{
	"lm":    "; " + left["listen.lm"],
	"sieve": "; kvstored-lab alone has that policy, and simulates it",
	"gdsf":  "; kvstored-lab alone has that policy, and simulates it",

	"selective": "; " + leftToTenure,
}

const leftToBridge = "ZeroMQ is published by `kvstored-router bridge`, which has a flag for it"

const leftToTenure = "disk.policy: tenure, the default, writes what is worth it; take it out"

// inList is the place of an element in its list.
var inList = regexp.MustCompile(`\[[0-9]+\]`)

// whyLeft says what to do without a key that there was; "" if it never was one.
func (d *decoder) whyLeft(path string) string {
	if why := d.left[inList.ReplaceAllString(path, "[]")]; why != "" {
		return why
	}
	return d.left[section(path)]
}
