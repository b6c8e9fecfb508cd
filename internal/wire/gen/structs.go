package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

const structsFile = "internal/wire/messages.go"

// goFields are Go's types of fields that say more than their kind does, by field, or by
// message and field.
var goFields = map[string]string{
	"search": "Tiers", "tier": "Tiers", "failed_tier": "Tiers", "tiers": "TierCounts", "policy": "WaitPolicy", "code": "Code",
	"put_mode": "PutMode", "wants": "Features", "granted": "Features", "rights": "Rights", "retry": "Retry", "durable": "bool",
	"json": "[]byte", "configs": "Pairs", "hash": "key.Hash", "parent": "key.Hash", "payloads": "[]byte", "why": "bool", "distrust": "bool",
	"event.space": "key.SpaceID", "event_space.id": "key.SpaceID", "space_info.id": "key.SpaceID",
	"event.kind": "EventKind", "group.kind": "GroupKind", "events push.flags": "EventsFlags", "events request.flags": "bool",
}

// goEnum is how an enumeration is called in Go.
type goEnum struct {
	typ, prefix string // the type, and how each of its names begins
	of          string // the type that it is of; "" where typ is the language's
	text        string // what String calls an unknown number; "" where there is no String
}

var goEnums = map[string]goEnum{
	"features": {"Features", "Feature", "uint32", ""}, "rights": {"Rights", "Right", "uint8", ""}, "tiers": {"Tiers", "Tier", "uint8", ""},
	"put_modes": {"PutMode", "Put", "uint8", "put mode"}, "forms": {"Form", "Form", "uint8", "form"}, "policies": {"WaitPolicy", "Policy", "uint8", "policy"},
	"prefetch_flags": {"uint8", "Prefetch", "", ""}, "reserve_flags": {"uint8", "Reserve", "", ""}, "group_kinds": {"GroupKind", "Group", "uint8", ""},
	"events_push_flags": {"EventsFlags", "Events", "uint8", ""}, "event_kinds": {"EventKind", "Event", "uint8", "kind"}, "retry": {"Retry", "Retry", "uint8", "retry"},
	"kinds": {"Kind", "Kind", "uint8", "kind"}, "operations": {"Op", "Op", "uint8", "op"}, "codes": {"Code", "Code", "uint16", "code"},
}

// byHand are a type whose items depend on its form, and those of package key.
var byHand = []string{"chain", "pair", "space"}

// structs prints the enumerations, and the structs that messages are.
func (p *goPrinter) structs() {
	s := p.Schema
	p.print("%s", strings.Replace(goHead, "\t\"encoding/binary\"\n\n", "", 1))
	enums := maps.Clone(s.Enums)
	enums["kinds"], enums["operations"], enums["codes"] = make(map[string]uint32), make(map[string]uint32), make(map[string]uint32)
	for name, n := range s.Kinds {
		enums["kinds"][name] = uint32(n)
	}
	for name, op := range s.Operations {
		enums["operations"][name] = uint32(op.Op)
	}
	p.print("\n// codeRetries is when a request that was refused may be sent again, by code.\nvar codeRetries = [...]Retry{\n")
	for _, c := range s.Codes {
		enums["codes"][c[1].(string)] = uint32(c[0].(float64))
		p.print("Code%s: Retry%s,\n", camel(c[1].(string)), camel(c[2].(string)))
	}
	p.print("}\n")
	for _, name := range sorted(goEnums) {
		p.enum(name, enums[name])
	}
	done := make(map[string]bool)
	for _, name := range sorted(s.Types) {
		if !slices.Contains(byHand, name) {
			p.declare(name, s.Types[name], false, done)
		}
	}
	for _, name := range sorted(s.Operations) {
		op := s.Operations[name]
		p.declare(name+" request", op.Request, op.Waits != "", done)
		p.declare(name+" reply", op.Reply, false, done)
	}
	p.declare("events push", s.Pushes["events"].Body, false, done)
	p.declare("shared", []string{"options prefetch"}, false, done)
}

// enum prints the names of numbers.
func (p *goPrinter) enum(name string, of map[string]uint32) {
	as, notes := goEnums[name], p.Notes[name]
	if as.of != "" {
		p.print("\n%stype %s %s\n", remark(notes[""]), as.typ, as.of)
	}
	p.print("\n// The %s.\nconst (\n", strings.ReplaceAll(name, "_", " "))
	order := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Compare(of[a], of[b]) })
	for _, value := range order {
		p.print("%s%s %s = %d%s\n", as.prefix, camel(value), as.typ, of[value], tail(notes[value]))
	}
	p.print(")\n")
	if as.text == "" {
		return
	}
	table := strings.ToLower(as.prefix[:1]) + as.prefix[1:] + "Names"
	p.print("\n// String returns the stable name.\nfunc (v %s) String() string { return name(%s[:], uint16(v), %q) }\n\nvar %[2]s = [...]string{\n", as.typ, table, as.text)
	for _, value := range order {
		p.print("%s%s: %q,\n", as.prefix, camel(value), value)
	}
	p.print("}\n")
}

// declare prints a struct, unless another message had it before.
func (p *goPrinter) declare(name string, body any, waits bool, done map[string]bool) {
	typ := goType(name)
	if _, isType := body.(string); isType || done[typ] {
		return
	}
	done[typ] = true
	fields, ok := body.([]string)
	if !ok {
		fields = p.Fields(body)
	}
	notes := p.Notes[name]
	p.print("\n%stype %s struct {\n", remark(notes[""]), typ)
	for _, f := range fields {
		switch of, kind := field(f); of {
		case "zero", "magic":
		case "options":
			p.optional(name, kind)
		default:
			p.member(name, of, fieldType(name, of, kind))
		}
	}
	if name == "grouped" { // beside which their option lies
		p.member(name, "lengths", "U32s")
	}
	if waits {
		p.member(name, "deadline", "Deadline")
	}
	p.print("}\n")
}

// optional prints what a list of options says.
func (p *goPrinter) optional(name, list string) {
	if name != "shared" && (list == "lookup" || list == "prefetch") {
		p.member(name, "shared", "Shared")
		return
	}
	for _, o := range p.list(list) {
		typ := fieldType(name, o.name, o.kind)
		switch _, isStruct := p.Types[o.kind]; {
		case list == "request" || o.kind == "u32[]" && o.name == "lengths": // a deadline; a part of Grouped
		case isStruct && strings.HasPrefix(list, "hello"):
			p.member(name, "has_"+o.name, "bool")
			p.member(name, o.name, typ)
		case isStruct:
			p.member(name, o.name, "*"+typ)
		default:
			p.member(name, o.name, typ)
		}
	}
}

// member prints a field, an array of Go with the first of its numbers.
func (p *goPrinter) member(of, name, typ string) {
	as, index, isArray := strings.Cut(goName(of, name), "[")
	note := p.Notes[of][name]
	switch {
	case isArray && index != "0]":
		return
	case isArray:
		typ = "[TierCount]" + typ
	}
	p.note(goType(of), as, typ)
	if len(note) > 80 {
		p.print("%s%s %s\n", remark(note), as, typ)
		return
	}
	p.print("%s %s%s\n", as, typ, tail(note))
}

// fieldType is the type of a field in Go.
func fieldType(of, name, kind string) string {
	if typ := cmp.Or(goFields[of+"."+name], goFields[name]); typ != "" {
		return typ
	}
	element := strings.Trim(kind, "{}[]*")
	switch {
	case kind == "str", kind == "text":
		return "string"
	case kind == "u32[]":
		return "U32s"
	case wiretest.Scalars[kind] > 0:
		return "uint" + kind[1:]
	case strings.HasSuffix(kind, "[]"):
		return goLists[element]
	case strings.HasSuffix(kind, "*"):
		return "[]" + goType(element)
	}
	return goType(element)
}

// remark is a note as lines of their own, tail as the end of one.
func remark(note string) string {
	var b strings.Builder
	for line := range strings.Lines(note) {
		b.WriteString("// " + strings.TrimSuffix(line, "\n") + "\n")
	}
	return b.String()
}

func tail(note string) string {
	if note == "" {
		return ""
	}
	return fmt.Sprintf(" // %s", note)
}
