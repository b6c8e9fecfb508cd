package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

// left are keys that there were, and what to do without each. A section stands for all of
// its keys.
var left = map[string]string{
	"arena":          "engines are waited for 50 us while the machine is idle, they store through a window of their own, and one hit of 256 in DRAM is hashed again; take it out",
	"events.batches": "1,024 can be asked for again; take it out",
	"events.publish": leftToBridge,
	"events.replay":  leftToBridge,
	"events.open":    leftToBridge,
	"events.topic":   leftToBridge,
	"events.tokens":  "tokens of chunks are not told any more; take it out",
	"listen.lm":      "lm:// is not spoken any more; take LMCache's plug-in or L2 adapter, or its Redis client at listen.resp",
	"listen.lm_open": "lm:// is not spoken any more, so that there is nothing to open; take it out",

	"write.min_hits":     leftToTenure,
	"spaces[].priority":  "nothing is spared by its model any more; a quota bounds the others, and clients retain what is to stay (hints); take it out",
	"prefetch.next_turn": "a prompt that was stored is not promoted any more: its next turn asks for it",

	"listen.resp_flush": "Redis clients cannot empty the store any more; kvstored forget --space does it, by the id that kvstored list spaces shows below (values of the resp front end)",

	"admin.what_if":       "the sample is always kept, in 32 MiB; take it out",
	"cpu.rank_by":         leftToDepth,
	"disk.rank_by":        leftToDepth,
	"cpu.high_watermark":  leftToWatermarks,
	"cpu.low_watermark":   leftToWatermarks,
	"disk.high_watermark": leftToWatermarks,
	"disk.low_watermark":  leftToWatermarks,
	"cpu.learned":         "what tenure has learned is beside the disk's database (disk.meta); take it out",
	"disk.inline_max":     "payloads up to 2 KiB are in the database, where they are found faster; take it out",
	"disk.segment_size":   "a segment has an eighth of disk.capacity, 64 MiB to 1 GiB; take it out",
	"disk.io_timeout":     "a read of 10 s is a miss, and prefetch.deadline bounds what a client waits for; take it out",
	"disk.io_depth":       "a probe of each path finds it; take it out",
	"remote.s3.flight":    "reads of 256 MiB are in flight at most; remote.s3.concurrency says how many; take it out",
	"write.queue":         "1 GiB may wait to be written, or a fifth of cpu.capacity if that is less; take it out",
	"prefetch.window":     "256 MiB are read at once for one prompt; take it out",
	"pin":                 "a pin ends after 5 minutes; clients retain what is to stay longer (hints, which retain bounds); take it out",
	"retain.max_duration": "clients retain for 30 days at most; retain.total and retain.uid bound how much; take it out",
	"budget":              "the shares of DRAM are fixed: 0.4 for leases, 0.2 for pins, 0.2 for loads, 0.2 for what waits for the disk; take it out",
	"limits.uid_memory":   "one user may hold 0.75 of limits.memory; take it out",
	"limits.chunks":       "it is derived from the memory of the daemon, as check prints; limits.memory bounds what is for clients; take it out",
	"limits.stall":        "a connection without progress ends after 30 s; take it out",
	"limits.uid_jobs":     "one user may have 16,384; take it out",

	"upgrade": "a stop and a start keep DRAM and the sockets with cpu.keep: true, where systemd or serve --keeper has them",

	"route": "the router is a program of its own; give this section to it, in a file for `kvstored-router serve`",
}

// valuesLeft are values that there were, and what came of them.
var valuesLeft = map[string]string{
	"lm":    "; " + left["listen.lm"],
	"sieve": "; kvstored-lab alone has that policy, and simulates it",
	"gdsf":  "; kvstored-lab alone has that policy, and simulates it",

	"back":      "; auto writes when DRAM evicts, once the disk is full; until then nothing is gained by waiting",
	"selective": "; disk.policy: tenure, the default, writes what is worth it, with either mode",
}

// instead are the values that Rewrite has for those that left: the defaults of their keys.
var instead = map[string]string{"cpu.policy": "lru", "disk.policy": "tenure", "write.mode": WriteAuto}

const leftToBridge = "ZeroMQ is published by `kvstored-router bridge`, which has a flag for it"

const leftToDepth = "prefill_depth of a rule in spaces has tenure weigh chunks by what they take to compute; take it out"

const leftToWatermarks = "eviction begins at 0.95 of the capacity and goes down to 0.90; take it out"

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

// Rewrite is the text of a configuration file without the keys and values that left, its
// comments kept. taken are these, in the order of the text, each with its replacement. err
// is any other problem of the new text.
func Rewrite(path string) (fresh []byte, taken Errors, err error) {
	text, err := read(path)
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	var errs Errors
	if _, err := Parse(path, text, Rules{}); errors.As(err, &errs) {
		taken = slices.DeleteFunc(errs, func(e *Error) bool { return !e.Left && e.Instead == "" })
	}
	left := string(text)
	for _, e := range slices.Backward(taken) {
		if e.Left {
			left = withoutKey(left, e.Line, e.Column)
		} else if list, at := tokenAt(left, e.Line, e.Column); at >= 0 {
			from := offset(left, list[at])
			left = left[:from] + e.Instead + strings.TrimPrefix(left[from:], strings.TrimSpace(list[at].Origin))
			e.Text += "; the new file has " + e.Instead
		}
	}
	fresh = []byte(left)
	_, err = Parse("the new file", fresh, Rules{})
	return fresh, taken, err
}

// withoutKey takes out the key that begins at a line and column, with its value.
func withoutKey(text string, line, column int) string {
	list, at := tokenAt(text, line, column)
	if at < 0 {
		return text // the caller finds the key there still
	}
	depth := 0
	for _, t := range list[:at] {
		depth += deeper(t)
	}
	if depth > 0 {
		return withoutInBraces(text, list, at)
	}
	last, next := line, at+1 // line of the value's last token, and the token behind it
	for ; next < len(list); next++ {
		p, kind := list[next].Position, list[next].Type
		if p.Line > line && depth == 0 && kind != token.CommentType && (p.Column < column || p.Column == column && kind != token.SequenceEntryType) {
			break
		}
		if depth += deeper(list[next]); kind != token.CommentType {
			last = p.Line
		}
	}
	return withoutLines(strings.SplitAfter(text, "\n"), line-1, last, column-1)
}

// tokenAt is the tokens of text, and which of them begins at a line and column.
func tokenAt(text string, line, column int) (list token.Tokens, at int) {
	list = lexer.Tokenize(text)
	return list, slices.IndexFunc(list, func(t *token.Token) bool { return t.Position.Line == line && t.Position.Column == column })
}

// deeper is 1 of a token that begins braces, -1 of one that ends them.
func deeper(t *token.Token) int {
	switch t.Type {
	case token.MappingStartType, token.SequenceStartType:
		return 1
	case token.MappingEndType, token.SequenceEndType:
		return -1
	}
	return 0
}

// withoutInBraces takes out a key of a mapping in braces, and one comma.
func withoutInBraces(text string, list token.Tokens, at int) string {
	end, depth := at, 0
	for ; depth > 0 || list[end].Type != token.CollectEntryType && deeper(list[end]) >= 0; end++ {
		depth += deeper(list[end])
	}
	from, to := offset(text, list[at]), offset(text, list[end])
	if list[end].Type == token.CollectEntryType {
		return text[:from] + strings.TrimLeft(text[to+1:], " ")
	}
	if before := strings.TrimRight(text[:from], " "); strings.HasSuffix(before, ",") {
		from = len(before) - 1
	}
	return text[:from] + text[to:]
}

// offset is where a token begins.
func offset(text string, t *token.Token) (at int) {
	lines := strings.SplitAfter(text, "\n")
	for _, l := range lines[:t.Position.Line-1] {
		at += len(l)
	}
	return at + len(string([]rune(lines[t.Position.Line-1])[:t.Position.Column-1]))
}

// withoutLines takes out the lines of a key and its value, and comments beside that.
func withoutLines(lines []string, line, end, column int) string {
	for i := end; i < len(lines) && (strings.TrimSpace(lines[i]) == "" || indent(lines[i]) > column); i++ {
		if strings.TrimSpace(lines[i]) != "" {
			end = i + 1
		}
	}
	head := string([]rune(lines[line])[:column])
	if strings.Contains(head, "-") && end < len(lines) && indent(lines[end]) == column { // the entry goes on
		lines[end] = head + lines[end][column:]
	}
	return strings.Join(slices.Delete(lines, line, end), "")
}

// indent is how many spaces a line begins with.
func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }
