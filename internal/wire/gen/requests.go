package main

import (
	"fmt"
	"strings"
)

// request prints the function that makes the body of a request, or the record of a type.
func (p *printer) request(name string, fields []string) {
	r := &request{printer: p}
	for _, f := range fields {
		r.field(field(f))
	}
	r.flush()
	signature := strings.Join(r.params, ", ")
	if len(r.options) > 0 {
		signature = strings.TrimPrefix(signature+", *, ", ", ") + strings.Join(r.options, ", ")
	}
	body := strings.Join(r.parts, " + ")
	if _, ok := p.Operations[name]; !ok && !r.whole {
		body = "_record(" + body + ")"
	}
	p.print("\n\ndef %s(%s) -> bytes:\n%s    return %s\n", name, signature, r.body.String(), body)
}

// request is one on its way: what its function takes, does, and puts together.
type request struct {
	*printer
	params, options, parts []string
	body                   strings.Builder
	format                 string   // of the numbers that follow each other
	numbers                []string // their names
	whole                  bool     // it has its length already
}

func (r *request) field(name, kind string) {
	name = attribute(name)
	switch {
	case name == "magic":
		r.format, r.numbers = r.format+"4s", append(r.numbers, "MAGIC")
	case name == "payloads":
	case name == "options":
		r.flush()
		r.optional(kind)
	case r.fixed(name, kind) != "":
		r.format += r.fixed(name, kind)
		if name != "zero" {
			r.numbers = append(r.numbers, name)
			r.params = append(r.params, name+initial(name, kind))
		}
	case kind == "item[]": // of a record: its length, what is before, and the array's head are packed together
		r.params = append(r.params, name+`: Buffer = b""`, "width: int = 0")
		head := bytes(r.format) + 8
		r.body.WriteString("    size = len(items)\n")
		r.format = "I4x" + r.format + "IH2x"
		r.numbers = append([]string{fmt.Sprintf("%d + size + (-size & 7)", head)}, append(r.numbers, "size // width if width else 0", "width")...)
		r.part("items + PAD[size & 7]")
		r.whole = true
	case kind == "str", kind == "text":
		r.params = append(r.params, name+`: str = ""`)
		r.part(text(name, kind))
	case strings.HasPrefix(kind, "{"):
		r.params = append(r.params, name+": bytes")
		r.part(name)
	case strings.HasSuffix(kind, "*"):
		r.params = append(r.params, name+": Sequence[bytes] = ()")
		r.part("_list(" + name + ")")
	default: // u32[]
		r.params = append(r.params, name+": Sequence[int] = ()")
		r.part("_numbers(" + name + ")")
	}
}

// initial is the type of a number, and its default.
func initial(name, kind string) string {
	switch {
	case strings.HasSuffix(name, "_version"):
		return ": int = VERSION"
	case strings.HasPrefix(kind, "bytes "):
		return fmt.Sprintf(": bytes = bytes(%s)", strings.TrimPrefix(kind, "bytes "))
	}
	return ": int = 0"
}

func text(name, kind string) string {
	most := "MOST_STR_BYTES"
	if kind == "text" {
		most = "MOST_REQUEST_BYTES"
	}
	return fmt.Sprintf("(NO_OPTIONS if %s == \"\" else _text(%[1]s, %s))", name, most)
}

func (r *request) part(code string) {
	r.flush()
	r.parts = append(r.parts, code)
}

// flush has the numbers before it packed.
func (r *request) flush() {
	if r.format == "" {
		return
	}
	part := fmt.Sprintf("part%d", len(r.parts))
	all := strings.Join(r.numbers, ", ")
	fmt.Fprintf(&r.body, "    try:\n        %s = %s.pack(%s)\n    except struct.error:\n        _misfit(%s)\n", part, r.layout(r.format), all, strings.Replace(all, "MAGIC, ", "", 1))
	r.parts = append(r.parts, part)
	r.format, r.numbers = "", nil
}

// optional takes the options of a list as keywords, with those that all requests may have.
func (r *request) optional(list string) {
	var none, values []string
	for _, o := range r.list("request", list) {
		said, code := r.option(o.kind, o.name)
		r.options = append(r.options, fmt.Sprintf("%s: Optional[%s] = None", o.name, said))
		none = append(none, o.name+" is None")
		values = append(values, fmt.Sprintf("(%d, None if %s is None else %s)", o.tag, o.name, code))
	}
	fmt.Fprintf(&r.body, "    options = NO_OPTIONS\n    if not (%s):\n        options = _options(%s)\n", strings.Join(none, " and "), strings.Join(values, ", "))
	r.parts = append(r.parts, "options")
}

// option is the type of an option of a request, and the code of its value.
func (r *request) option(kind, name string) (said, code string) {
	if letter := letters[kind]; letter != "" {
		return "int", fmt.Sprintf("_number(_%s, %s)", strings.ToUpper(kind), name)
	}
	switch element := strings.TrimRight(kind, "[]*"); {
	case kind == "u32[]":
		return "Sequence[int]", "_numbers(" + name + ")"
	case strings.HasSuffix(kind, "[]"):
		return "Sequence[Sequence[int]]", fmt.Sprintf("_rows(%s, %s)", name, r.layout(r.fixed("", element)))
	case strings.HasSuffix(kind, "*"):
		return "Sequence[bytes]", "_list(" + name + ")"
	}
	return "bytes", name + "[8:]" // a record without its length
}
