package main

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// absent are records that are there only where the code is ok, as the reply of a job.
var absent = []string{"batched.reply"}

// requestsOnly are types that no reply has.
var requestsOnly = []string{"chain", "prompt"}

// reader prints the tuple of a message, and the function that reads it: of a type from
// inside a body, of a reply and a push from a whole one.
func (p *printer) reader(name string, fields []string) {
	if slices.Contains(requestsOnly, name) {
		return
	}
	r := &reader{printer: p, of: name}
	for _, f := range fields {
		name, kind := field(f)
		r.field(name, kind, "")
	}
	r.flush()
	r.tuple(name)
	_, inside := p.Types[name]
	switch {
	case inside:
		p.print("\n\ndef read_%s(data: Buffer, at: int, end: int) -> Tuple[%s, int]:\n%s    return _new(%[2]s, (%[4]s)), at\n", name, class(name), r.body.String(), r.values())
	case len(r.fields) == 0:
		p.print("\n\ndef %s(data: Buffer) -> None:\n    at, end = 0, len(data)\n%s", name, r.body.String())
	default:
		p.print("\n\ndef %s(data: Buffer) -> %s:\n    at, end = 0, len(data)\n%s    return _new(%[2]s, (%[4]s))\n", name, class(name), r.body.String(), r.values())
	}
}

// tuple prints the class of a message.
func (r *reader) tuple(name string) {
	if len(r.fields) == 0 {
		return
	}
	r.print("\n\nclass %s(NamedTuple):\n", class(name))
	for _, f := range r.fields {
		r.print("    %s\n", f)
	}
}

// reader reads a message: its attributes, the code, and the code of each attribute.
type reader struct {
	*printer
	of      string
	fields  []string
	code    []string
	body    strings.Builder
	format  string
	numbers []string
}

func (r *reader) values() string { return strings.Join(r.code, ", ") + "," }

func (r *reader) line(format string, args ...any) {
	r.body.WriteString("    " + fmt.Sprintf(format, args...) + "\n")
}

// take has numbers read with those beside them.
func (r *reader) take(format string, names ...string) {
	r.format, r.numbers = r.format+format, append(r.numbers, names...)
}

var pieces = regexp.MustCompile(`(\d*)([a-zA-Z])`)

// bytes is how long a struct is.
func bytes(format string) int {
	sizes, total := map[string]int{"B": 1, "x": 1, "s": 1, "H": 2, "I": 4, "Q": 8}, 0
	for _, piece := range pieces.FindAllStringSubmatch(format, -1) {
		n := 1
		if piece[1] != "" {
			var err error
			if n, err = strconv.Atoi(piece[1]); err != nil {
				panic(err) // of the generator: it stops
			}
		}
		total += n * sizes[piece[2]]
	}
	return total
}

// flush has the numbers before it read.
func (r *reader) flush() {
	if r.format == "" {
		return
	}
	size := bytes(r.format)
	r.line("if at + %d > end:", size)
	r.line("    _short(at, %d, end)", size)
	comma := ""
	if len(r.numbers) == 1 {
		comma = ","
	}
	r.line("%s%s = %s.unpack_from(data, at)", strings.Join(r.numbers, ", "), comma, r.layout(r.format))
	r.line("at += %d", size)
	r.format, r.numbers = "", nil
}

// add makes code an attribute, unless it is part of another.
func (r *reader) add(name, said, code string) {
	r.fields = append(r.fields, attribute(name)+": "+said)
	r.code = append(r.code, code)
}

func (r *reader) field(name, kind, prefix string) {
	v := prefix + name
	element := strings.Trim(kind, "{}[]*")
	switch {
	case name == "zero":
		r.take(kind + "x")
	case name == "options":
		r.told(kind)
	case name == "payloads":
		r.line("size = sum([row[0] for row in chunks])")
		r.line("if at + size + (-size & 7) > end:")
		r.line("    _short(at, size, end)")
		r.add(name, "memoryview", "memoryview(data)[at : at + size]")
	case letters[kind] != "":
		r.take(letters[kind], v)
		r.add(name, "int", v)
	case strings.HasPrefix(kind, "bytes "):
		r.take(r.fixed(name, kind), v)
		r.add(name, "bytes", v)
	case kind == "str", kind == "text":
		r.read(v, "_read_text(data, at, end)")
		r.add(name, "str", v)
	case kind == "u32[]":
		r.read(v, "_read_numbers(data, at, end)")
		r.add(name, "List[int]", v)
	case strings.HasSuffix(kind, "[]"):
		r.array(v, element)
		r.add(name, "List[Row]", v)
	case strings.HasSuffix(kind, "*"):
		r.read(v, "_read_list(data, at, end, read_"+element+")")
		r.add(name, "List["+class(element)+"]", v)
	case strings.HasPrefix(kind, "{"):
		r.record(name, v, element)
	default:
		r.inline(name, v, kind)
	}
}

func (r *reader) read(v, code string) {
	r.flush()
	r.line("%s, at = %s", v, code)
}

func (r *reader) array(v, element string) {
	r.take("IH2x", v+"_count", v+"_size")
	r.flush()
	format := r.fixed("", element)
	r.line("to = at + %s_count * %[1]s_size", v)
	r.line("if %s_size == %d and to <= end:", v, bytes(format)) // the usual case, here rather than in a call
	r.line("    %s = list(%s.iter_unpack(data[at:to]))", v, r.layout(format))
	r.line("else:")
	r.line("    %s = _table(data, at, end, %[1]s_count, %[1]s_size, %s)", v, r.layout(format))
	r.line("at = to + (-to & 7)")
}

func (r *reader) record(name, v, element string) {
	said, unless := class(element), ""
	if slices.Contains(absent, r.of+"."+name) {
		said, unless = "Optional["+said+"]", " if code == 0 else None"
	}
	r.take("I4x", v+"_size")
	r.flush()
	r.line("to = at + %s_size", v)
	r.line("if to + (-to & 7) > end:")
	r.line("    _short(at, %s_size, end)", v)
	r.line("%s = read_%s(data, at, to)[0]%s", v, element, unless)
	r.line("at = to + (-to & 7)")
	r.add(name, said, v)
}

// inline reads a type in the place where it stands.
func (r *reader) inline(name, v, kind string) {
	part := &reader{printer: r.printer, of: kind, format: r.format, numbers: r.numbers}
	for _, f := range r.Types[kind] {
		sub, of := field(f)
		part.field(sub, of, v+"_")
	}
	r.body.WriteString(part.body.String())
	r.format, r.numbers = part.format, part.numbers
	if kind == "count" {
		r.add(name, "Row", "("+part.values()+")")
		return
	}
	r.add(name, class(kind), "_new("+class(kind)+", ("+part.values()+"))")
}

// told reads options, which are the last of a message or stand before its payloads.
func (r *reader) told(list string) {
	r.take("I4x", "more")
	r.flush()
	var known, names, gets []string
	for _, o := range r.list(list) {
		said, read := r.option(o.kind)
		known = append(known, fmt.Sprintf("%d: %s", o.tag, read))
		r.fields = append(r.fields, fmt.Sprintf("%s: Optional[%s] = None", o.name, said))
		r.code = append(r.code, o.name)
		names, gets = append(names, o.name), append(gets, fmt.Sprintf("told.get(%d)", o.tag))
	}
	if len(known) == 0 {
		r.line("if more:")
		r.line("    _, at = _read_options(data, at, end, more, {})")
		return
	}
	options := "_" + strings.ToUpper(r.of) + "_OPTIONS"
	r.line("%s = None", strings.Join(names, " = "))
	r.line("if more:")
	r.line("    told, at = _read_options(data, at, end, more, %s)", options)
	r.line("    %s = %s", strings.Join(names, ", "), strings.Join(gets, ", "))
	r.after = append(r.after, fmt.Sprintf("%s: Dict[int, _Reader] = {%s}", options, strings.Join(known, ", ")))
}

// option is the type of an option of a reply, and what reads it.
func (r *reader) option(kind string) (said, read string) {
	element := strings.TrimRight(kind, "[]*")
	switch {
	case kind == "u32[]":
		return "List[int]", "_read_numbers"
	case letters[kind] != "":
		return "int", fmt.Sprintf("lambda data, at, end: (_%s.unpack_from(data, at)[0], at) if at + %d <= end else _short(at, %[2]d, end)", strings.ToUpper(kind), bytes(letters[kind]))
	case strings.HasSuffix(kind, "[]"):
		return "List[Row]", fmt.Sprintf("lambda data, at, end: _read_array(data, at, end, %s)", r.layout(r.fixed("", element)))
	case strings.HasSuffix(kind, "*"):
		return "List[" + class(element) + "]", fmt.Sprintf("lambda data, at, end: _read_list(data, at, end, read_%s)", element)
	}
	return class(kind), "read_" + kind
}
