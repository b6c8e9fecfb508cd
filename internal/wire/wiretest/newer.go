package wiretest

import (
	"encoding/binary"
	"strconv"
	"strings"
)

// added is what a newer daemon has added to a record or to an element.
const added = "\x11\x22\x33\x44\x55\x66\x77\x88"

// addedOption is an option of tag 0x70 that is not known today.
const addedOption = "\x70\x00\x00\x00\x03\x00\x00\x00new\x00\x00\x00\x00\x00"

// Newer is a reply or a push with all that a newer daemon of this version may add: 8
// bytes in each element of an array of structs and in each record, and an unknown option
// in each list. A refusal of the version, which never grows, stays as it is. It panics
// where the frame is not as the schema says.
func (s *Schema) Newer(frame []byte) []byte {
	if code := number(frame[6:8]); code == s.version() {
		return frame
	}
	g := &grower{s: s, b: frame}
	g.take(headerBytes)
	g.fields(s.Body(frame), "")
	g.out = append(g.out, make([]byte, -len(g.out)&7)...)
	binary.LittleEndian.PutUint32(g.out, uint32(len(g.out)-headerBytes))
	return g.out
}

// grower copies a frame field by field.
type grower struct {
	s        *Schema
	b        []byte
	off      int
	out      []byte
	payloads int // bytes, by the chunks that were read
}

func (g *grower) take(n int) []byte {
	v := g.b[g.off : g.off+n]
	g.off += n
	g.out = append(g.out, v...)
	return v
}

func (g *grower) fields(fields []string, at string) {
	for _, f := range fields {
		name, kind := head(f)
		g.field(at+name, name, kind)
	}
}

func (g *grower) field(at, name, kind string) {
	word, rest := head(kind)
	switch {
	case name == "payloads":
		g.take(g.payloads + -g.payloads&7)
	case name == "zero":
		g.take(size(kind))
	case name == "options":
		g.options(kind)
	case word == "bytes":
		g.take(size(rest))
	case Scalars[kind] > 0:
		if v := number(g.take(Scalars[kind])); at == "chunks.bytes" {
			g.payloads += int(v)
		}
	case kind == "str", kind == "text":
		n := int(number(g.take(4)))
		g.take(n + -(4+n)&7)
	case strings.HasPrefix(kind, "{"):
		g.record(at, g.s.Types[strings.Trim(kind, "{}")])
	case strings.HasSuffix(kind, "*"):
		n := number(g.take(4))
		for g.take(4); n > 0; n-- {
			g.record(at, g.s.Types[strings.TrimSuffix(kind, "*")])
		}
	case strings.HasSuffix(kind, "[]"):
		g.array(at, strings.TrimSuffix(kind, "[]"))
	default:
		g.fields(g.s.Types[kind], at+".")
	}
}

func (g *grower) record(at string, fields []string) {
	start := len(g.out)
	if n := number(g.take(4)); n == 0 { // it is not there
		g.take(4)
		return
	}
	g.take(4)
	g.fields(fields, at+".")
	g.out = append(g.out, added...)
	binary.LittleEndian.PutUint32(g.out[start:], uint32(len(g.out)-start-8))
}

func (g *grower) array(at, kind string) {
	start := len(g.out)
	n, each := int(number(g.take(4))), int(number(g.take(2)))
	g.take(2)
	if _, ok := g.s.Types[kind]; !ok {
		g.take(n*each + -(n*each)&7)
		return
	}
	for range n {
		g.fields(g.s.Types[kind], at+".")
		g.out = append(g.out, added...)
	}
	if n > 0 {
		binary.LittleEndian.PutUint16(g.out[start+4:], uint16(each+len(added)))
	}
}

// options adds one behind those that there are, and 8 bytes to each value of a struct.
func (g *grower) options(list string) {
	start := len(g.out)
	n := number(g.take(4))
	g.take(4)
	for i := n; i > 0; i-- {
		at := len(g.out)
		tag := number(g.take(2))
		g.take(2)
		bytes := int(number(g.take(4)))
		name, kind := g.s.Option(list, tag)
		before := len(g.out)
		g.field(name, name, kind)
		if _, ok := g.s.Types[kind]; ok { // an array has grown in its elements
			g.out = append(g.out, added...)
		}
		binary.LittleEndian.PutUint32(g.out[at+4:], uint32(len(g.out)-before))
		g.take(-bytes & 7)
	}
	binary.LittleEndian.PutUint32(g.out[start:], uint32(n+1))
	g.out = append(g.out, addedOption...)
}

// size is a number of the schema.
func size(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err) // a mistake in the schema
	}
	return n
}
