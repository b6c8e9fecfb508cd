package main

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// enums are the schema's for fields of requests, by message or for all. Those of policies
// are numbers, of others bits.
var enums = map[string]string{
	"search": "tiers", "prefetch request.flags": "prefetch_flags", "batch request.flags": "prefetch_flags",
	"reserve request.flags": "reserve_flags", "policy": "policies",
}

// units are what a request says by a number in an option, which is never 0.
var units = map[string]string{
	"grain": "tokens", "max_age": "seconds", "prefill_rate": "tokens a second",
}

// codec is the two functions of a struct on their way.
type codec struct {
	*goPrinter
	of, typ      string
	request      bool
	append, read strings.Builder
	result       string // what the one that appends returns
}

func (c *codec) appends(format string, args ...any) { fmt.Fprintf(&c.append, format+"\n", args...) }
func (c *codec) reads(format string, args ...any)   { fmt.Fprintf(&c.read, format+"\n", args...) }

// label is a field as errors call it.
func (c *codec) label(name string) string {
	if _, inside := c.Types[c.of]; inside {
		name = c.of + " " + name
	}
	return strings.ReplaceAll(name, "_", " ")
}

// most is the schema's limit for a list, or for a number.
func (c *codec) most(name string) uint64 {
	switch name {
	case "prompts":
		name = "batch"
	case "why", "distrust":
		return 1
	}
	if n, ok := c.Limits[name]; ok {
		return n
	}
	return math.MaxUint32
}

// field adds a field, and the zeros behind it.
func (c *codec) field(f string, zeros int) {
	name, kind := field(f)
	switch name {
	case "zero", "payloads": // what goes with payloads is written by hand
	case "options":
		c.options(kind)
	case "magic":
		c.appends("dst = append(dst, Magic...)")
		c.reads("c.magic()")
	default:
		to, label := c.find(c.typ, goName(c.of, name)), c.label(name)
		if wiretest.Scalars[kind] > 0 {
			c.number(name, kind, to, zeros)
			return
		}
		write, read := c.value(to, name, kind, label)
		if c.of == "batched" && name == "reply" {
			write = fmt.Sprintf("if m.Code == CodeOK {\n%s\n} else {\ndst = appendZero(dst, 8)\n}", write)
			read = fmt.Sprintf("if m.Code == CodeOK {\n%s\n} else {\nc.record(%q)\n}", read, label)
		}
		c.appends("%s", write)
		c.reads("%s", read)
	}
}

// number adds a number. With its zeros it is appended as a larger one.
func (c *codec) number(name, kind string, to place, zeros int) {
	label, size := c.label(name), wiretest.Scalars[kind]
	code := fmt.Sprintf("c.%s(%q)", kind, label)
	enum := enums[c.of+"."+name]
	if c.request && enum == "" {
		enum = enums[name]
	}
	switch wide := size + zeros; {
	case to.typ == "bool":
		c.appends("dst = appendZero(appendBool(dst, %s), %d)", to.path, zeros)
		code = fmt.Sprintf("c.bool(%q)", label)
	case wide == 1:
		c.appends("dst = append(dst, %s)", as("byte", strings.Replace(to.typ, "uint8", "byte", 1), to.path))
	default:
		c.appends("dst = binary.LittleEndian.AppendUint%d(dst, %s)", 8*wide, as(fmt.Sprintf("uint%d", 8*wide), to.typ, to.path))
	}
	switch {
	case enum == "policies":
		code = fmt.Sprintf("c.upTo(%d, %q)", len(c.Enums[enum])-1, label)
	case enum != "":
		known := uint32(0)
		for _, bit := range c.Enums[enum] {
			known |= bit
		}
		code = fmt.Sprintf("c.flags(%#x, %q)", known, label)
	}
	from := "uint" + kind[1:]
	if to.typ == "bool" {
		from = "bool"
	}
	c.reads("%s = %s", to.path, as(to.typ, from, code))
	if zeros > 0 {
		c.reads("c.zero(%d, %q)", zeros, label)
	}
}

// value is what appends a value to dst, and what reads it from c.
func (c *codec) value(to place, name, kind, label string) (write, read string) {
	element := strings.Trim(kind, "{}[]*")
	short, of := strings.TrimPrefix(goType(element), "key."), "&"+to.path
	if strings.HasPrefix(to.typ, "*") {
		of = to.path
	}
	switch {
	case strings.HasPrefix(kind, "bytes "):
		return fmt.Sprintf("dst = append(dst, %s[:]...)", to.path),
			fmt.Sprintf("copy(%s[:], c.bytes(%d, %q))", to.path, bytesOf(kind), label)
	case kind == "str", kind == "text":
		if to.typ == "[]byte" {
			kind = "view"
		}
		text := strings.Replace(to.typ, "[]byte", "string", 1)
		return fmt.Sprintf("dst = appendStr(dst, %s)", as("string", text, to.path)),
			fmt.Sprintf("%s = %s", to.path, as(text, "string", fmt.Sprintf("c.%s(%q)", kind, label)))
	case to.typ == "TierCounts":
		return fmt.Sprintf("dst = appendTierCounts(dst, &%s)", to.path), fmt.Sprintf("%s = c.tierCounts()", to.path)
	case to.typ == "Pairs":
		return fmt.Sprintf("dst = appendPairs(dst, %s)", to.path), fmt.Sprintf("%s = c.pairs(%q)", to.path, label)
	case strings.HasSuffix(kind, "[]"):
		size, method := "4", "numbers"
		if goLists[element] != "" {
			size, method = bytesName(element), "array"
		}
		return fmt.Sprintf("dst = appendArray(dst, %s, %s)", size, to.path), fmt.Sprintf("%s = c.%s(%s, %q)", to.path, method, size, label)
	case strings.HasPrefix(kind, "{"):
		return fmt.Sprintf("{\nat := len(dst)\ndst = endRecord(append%s(beginRecord(dst), %s), at)\n}", short, of),
			fmt.Sprintf("{\nsub := c.record(%q)\nread%s(&sub, %s)\nc.ended(&sub, %[1]q)\n}", label, short, of)
	case strings.HasSuffix(kind, "*"):
		return fmt.Sprintf("dst = appendZero(binary.LittleEndian.AppendUint32(dst, uint32(len(%s))), 4)\nfor i := range %[1]s {\nat := len(dst)\ndst = endRecord(append%s(beginRecord(dst), &%[1]s[i]), at)\n}", to.path, short),
			fmt.Sprintf("%s = nil\nfor n := c.list(%d, %q); n > 0 && c.err == nil; n-- {\nsub := c.record(%[3]q)\nvar e %s\nread%s(&sub, &e)\nc.ended(&sub, %[3]q)\n%[1]s = append(%[1]s, e)\n}", to.path, c.most(name), label, goType(element), short)
	}
	return fmt.Sprintf("dst = append%s(dst, %s)", short, of), fmt.Sprintf("read%s(c, %s)", short, of)
}

// options adds the list at the end.
func (c *codec) options(list string) {
	all := c.list(list)
	if c.request {
		all = c.list("request", list)
	}
	_, waits := c.fields[c.typ]["Deadline"]
	switch deadline := c.request && len(all) == 1; {
	case deadline && waits:
		c.result = "appendDeadline(dst, m.Deadline)"
		c.reads("m.Deadline = c.deadline()")
	case deadline:
		c.result = "noOptions(dst)"
		c.reads("c.deadline()")
	case len(all) == 0:
		c.result = "noOptions(dst)"
		c.reads("c.noOptions()")
	default:
		c.result = "l.end()"
		c.known(all, waits)
	}
}

// known adds a list that has options of the message.
func (c *codec) known(all []option, waits bool) {
	var unset, cases, write strings.Builder
	var said []string // conditions, of which one holds where the list is not empty
	deadline := "Deadline{}"
	if waits {
		deadline = "m.Deadline"
		said = append(said, "m.Deadline.Given")
		unset.WriteString("m.Deadline = Deadline{}\n")
	}
	for _, o := range all {
		tag := fmt.Sprint(o.tag)
		if c.request {
			tag = "tag" + camel(o.name)
		}
		read := "c.u32(\"deadline\")"
		if o.name != "deadline" {
			to := c.find(c.typ, goName(c.of, o.name))
			set, code, in := c.option(o, to, tag)
			said, read = append(said, set), in
			fmt.Fprintf(&write, "if %s {\n%s\n}\n", set, code)
			if to.unless == "" {
				fmt.Fprintf(&unset, "%s = %s\n", to.path, zero(to.typ))
			}
		} else if waits {
			read = "m.Deadline = Deadline{true, " + read + "}"
		}
		fmt.Fprintf(&cases, "case %s:\n%s\n", tag, read)
	}
	c.appends("if !(%s) {\nreturn noOptions(dst)\n}\nl := beginOptions(dst, %s)\n%s", strings.Join(said, " || "), deadline, write.String())
	c.reads("%sif c.bare() {\nreturn\n}\nfor o := c.options(); c.next(&o); {\nswitch c := &o.value; o.tag {\n%sdefault:\no.unknown()\n}\n}", unset.String(), cases.String())
}

// option is when an option is said, what appends it to l, and what reads its value from c.
func (c *codec) option(o option, to place, tag string) (set, write, read string) {
	label := c.label(o.name)
	if o.kind == "u32" {
		most := c.most(o.name)
		what := cmp.Or(units[o.name], fmt.Sprintf("1 to %d", most))
		read = fmt.Sprintf("c.given(%d, %q, %q)", most, label, what)
		if to.typ == "bool" {
			return to.path, fmt.Sprintf("l.put32(%s, 1)", tag), fmt.Sprintf("%s = %s == 1", to.path, read)
		}
		return to.path + " != 0", fmt.Sprintf("l.put32(%s, %s)", tag, to.path), fmt.Sprintf("%s = %s", to.path, read)
	}
	if o.kind == "u64" {
		return to.path + " != 0", fmt.Sprintf("l.put64(%s, %s)", tag, to.path), fmt.Sprintf("%s = c.u64(%q)", to.path, label)
	}
	write, read = c.value(to, o.name, o.kind, label)
	write = strings.ReplaceAll(write, "dst", "l.dst")
	switch _, has := c.fields[c.typ]["Has"+camel(o.name)]; {
	case has:
		set = "m.Has" + camel(o.name)
		read = set + " = true\n" + read
	case strings.HasPrefix(to.typ, "*"):
		set = to.path + " != nil"
		read = fmt.Sprintf("%s = new(%s)\n%s", to.path, to.typ[1:], read)
	default:
		set = fmt.Sprintf("len(%s) > 0", to.path)
	}
	if most := c.most(o.name); c.request && strings.HasSuffix(o.kind, "[]") && most < math.MaxUint32 {
		read += fmt.Sprintf("\nc.atMost(%s.Len(), %d, %q)", to.path, most, label)
	}
	if to.unless != "" {
		set = to.unless + " != nil && " + set
		outer := c.fields[c.typ][strings.TrimPrefix(to.unless, "m.")]
		read = fmt.Sprintf("of := %s\nif of == nil {\nof = new(%s) // is read, and forgotten\n}\n%s", to.unless, outer[1:], strings.ReplaceAll(read, to.unless, "of"))
	}
	return set, fmt.Sprintf("at := l.begin(%s)\n%s\nl.finish(at)", tag, write), read
}

// zero is the value of a type that nothing was said of.
func zero(typ string) string {
	switch {
	case typ == "bool":
		return "false"
	case strings.HasPrefix(typ, "uint"):
		return "0"
	case strings.HasPrefix(typ, "*"), strings.HasPrefix(typ, "[]"), typ == "U32s", typ == "Pairs", isList(typ):
		return "nil"
	}
	return typ + "{}"
}

func isList(typ string) bool {
	for _, list := range goLists {
		if list == typ {
			return true
		}
	}
	return false
}
