package main

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

const pythonFile = "clients/python/src/kvstored/_wire.py"

// preamble has what does not depend on the schema: how texts, arrays and options lie.
//
//go:embed preamble.py
var preamble string

// letters are the numbers of the schema in the struct module.
var letters = map[string]string{"u8": "B", "u16": "H", "u32": "I", "u64": "Q"}

// printer prints the codec of one schema.
type printer struct {
	*wiretest.Schema
	out     strings.Builder
	structs []string // their formats, in the order of their numbers
	after   []string // lines behind all functions
}

func python(s *wiretest.Schema) string {
	p := &printer{Schema: s}
	p.numbers()
	for _, name := range sorted(s.Types) {
		p.reader(name, s.Types[name])
	}
	for _, name := range sorted(s.Operations) {
		op := s.Operations[name]
		p.request(name, s.Fields(op.Request))
		p.body(name+"_reply", op.Reply)
	}
	for _, name := range sorted(s.Pushes) {
		p.body(name+"_push", s.Pushes[name].Body)
	}
	for _, name := range []string{"space", "chain", "pair", "prompt"} {
		p.request(name, s.Types[name])
	}
	var layouts strings.Builder
	for i, format := range p.structs {
		fmt.Fprintf(&layouts, "_S%d = struct.Struct(\"<%s\")\n", i, format)
	}
	return preamble + p.out.String() + "\n\n" + layouts.String() + strings.Join(p.after, "\n") + "\n"
}

// body prints what reads a reply or a push: of its own form, or of that of a type.
func (p *printer) body(name string, body any) {
	if of, ok := body.(string); ok {
		p.print("\n\ndef %s(data: Buffer) -> %s:\n    return read_%s(data, 0, len(data))[0]\n", name, class(of), of)
		return
	}
	p.reader(name, p.Fields(body))
}

func (p *printer) print(format string, args ...any) { fmt.Fprintf(&p.out, format, args...) }

// layout is the name of a struct.
func (p *printer) layout(format string) string {
	i := slices.Index(p.structs, format)
	if i < 0 {
		i = len(p.structs)
		p.structs = append(p.structs, format)
	}
	return "_S" + strconv.Itoa(i)
}

// numbers prints the numbers of the schema by their names.
func (p *printer) numbers() {
	p.print("VERSION = %d\nMAGIC = b%q\nCRITICAL = %#x\n", p.Version, p.Magic, p.Critical)
	for _, kind := range sorted(p.Kinds) {
		p.print("%s = %d\n", strings.ToUpper(kind), p.Kinds[kind])
	}
	for _, enum := range sorted(p.Enums) {
		for _, name := range slices.SortedFunc(maps.Keys(p.Enums[enum]), func(a, b string) int { return int(p.Enums[enum][a]) - int(p.Enums[enum][b]) }) {
			p.print("%s_%s = %d\n", strings.ToUpper(enum), strings.ToUpper(name), p.Enums[enum][name])
		}
	}
	for _, name := range sorted(p.Limits) {
		p.print("MOST_%s = %d\n", strings.ToUpper(name), p.Limits[name])
	}
	p.print("\n\nclass Op(IntEnum):\n")
	for _, name := range slices.SortedFunc(maps.Keys(p.Operations), func(a, b string) int { return int(p.Operations[a].Op) - int(p.Operations[b].Op) }) {
		p.print("    %s = %d\n", strings.ToUpper(name), p.Operations[name].Op)
	}
	p.print("\n\nclass Code(IntEnum):\n    \"\"\"The codes of errors, jobs, slots and results alike; docs/protocol.md says what\n    to do about each.\"\"\"\n\n")
	for _, code := range p.Codes {
		p.print("    %s = %v\n", strings.ToUpper(code[1].(string)), code[0])
	}
}

// class is the name of a tuple.
func class(name string) string {
	var b strings.Builder
	for word := range strings.SplitSeq(name, "_") {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// attribute is a name that Python leaves to a field.
func attribute(name string) string {
	if name == "from" {
		return "from_"
	}
	return name
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// field is one of a message: its name, and the words of its kind.
func field(f string) (name, kind string) {
	name, kind, _ = strings.Cut(f, " ")
	return name, kind
}

// fixed is the format of a kind whose length is known, "" of others.
func (p *printer) fixed(name, kind string) string {
	if n, ok := strings.CutPrefix(kind, "bytes "); ok {
		return n + "s"
	}
	if name == "zero" {
		return kind + "x"
	}
	if letter := letters[kind]; letter != "" {
		return letter
	}
	var format strings.Builder
	for _, f := range p.Types[kind] {
		part := p.fixed(field(f))
		if part == "" {
			return ""
		}
		format.WriteString(part)
	}
	return format.String()
}

// option is one of a list of options.
type option struct {
	tag        int
	name, kind string
}

// list is the options of some lists together, by ascending tag.
func (p *printer) list(names ...string) []option {
	var all []option
	for _, list := range names {
		for name, said := range p.Options[list] {
			all = append(all, option{int(said[0].(float64)), name, said[1].(string)})
		}
	}
	slices.SortFunc(all, func(a, b option) int { return a.tag - b.tag })
	return slices.Compact(all)
}
