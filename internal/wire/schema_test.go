package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// schema is testdata/wire/schema.json.
type schema struct{ *wiretest.Schema }

func readSchema(t testing.TB) *schema {
	t.Helper()
	s, err := wiretest.Read(filepath.Join(goldenDir, "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	return &schema{s}
}

// walker reads a frame as the schema says, strictly, and writes its fields as
// annotated hexadecimal.
type walker struct {
	s        *schema
	b        []byte
	off      int
	payloads int // bytes of the sizes that were read
	out      strings.Builder
}

var errSchema = errors.New("not as the schema says")

func (w *walker) take(n int, note string) []byte {
	if n > len(w.b)-w.off {
		panic(fmt.Errorf("%w: %s at %d needs %d bytes of %d", errSchema, note, w.off, n, len(w.b)-w.off))
	}
	v := w.b[w.off : w.off+n]
	w.off += n
	for i := 0; i < len(v); i += 16 {
		line := fmt.Sprintf("% x", v[i:min(i+16, len(v))])
		if i == 0 && note != "" {
			line = fmt.Sprintf("%-48s # %s", line, note)
		}
		w.out.WriteString(line + "\n")
	}
	return v
}

func (w *walker) zeros(n int) {
	if n == 0 {
		return
	}
	if v := w.take(n, "zeros"); slices.Max(v) != 0 {
		panic(fmt.Errorf("%w: %x instead of zeros at %d", errSchema, v, w.off))
	}
}

func (w *walker) pad(n int) { w.zeros(-n & 7) }

func number(b []byte) uint64 {
	var full [8]byte
	copy(full[:], b)
	return binary.LittleEndian.Uint64(full[:])
}

func (w *walker) number(n int, note string) uint64 {
	v := number(w.b[w.off:min(w.off+n, len(w.b))])
	w.take(n, fmt.Sprintf("%s: %d", note, v))
	return v
}

func (w *walker) fields(fields []string, at string) {
	start := w.off
	for _, f := range fields {
		name, kind, _ := strings.Cut(f, " ")
		w.field(at+name, name, kind, start)
	}
}

func (w *walker) field(at, name, kind string, start int) {
	head, tail, _ := strings.Cut(kind, " ")
	switch {
	case name == "payloads":
		w.take(w.payloads, at)
		w.pad(w.payloads)
	case name == "zero":
		n, _ := strconv.Atoi(kind)
		w.zeros(n)
	case name == "options":
		w.options(at, kind)
	case head == "bytes":
		n, _ := strconv.Atoi(tail)
		w.take(n, at)
	case wiretest.Scalars[kind] > 0:
		if (w.off-start)%wiretest.Scalars[kind] != 0 {
			panic(fmt.Errorf("%w: %s is not aligned", errSchema, at))
		}
		v := w.number(wiretest.Scalars[kind], at)
		if at == "chunks.bytes" {
			w.payloads += int(v)
		}
	case kind == "str", kind == "text":
		n := int(number(w.b[w.off : w.off+4]))
		w.take(4, fmt.Sprintf("%s: %d bytes", at, n))
		w.take(n, fmt.Sprintf("%q", w.b[w.off:w.off+n]))
		w.pad(4 + n)
	case strings.HasPrefix(kind, "{"):
		w.record(at, w.s.Types[strings.Trim(kind, "{}")])
	case strings.HasSuffix(kind, "*"):
		n := w.number(4, at+": how many")
		w.zeros(4)
		for i := range n {
			w.record(fmt.Sprintf("%s %d", at, i), w.s.Types[strings.TrimSuffix(kind, "*")])
		}
	case strings.HasSuffix(kind, "[]"):
		w.array(at, strings.TrimSuffix(kind, "[]"))
	default:
		inner, ok := w.s.Types[kind]
		if !ok {
			panic(fmt.Errorf("%w: %s has the type %q", errSchema, at, kind))
		}
		w.fields(inner, at+".")
	}
}

func (w *walker) record(at string, fields []string) {
	n := int(w.number(4, at+": bytes"))
	w.zeros(4)
	end := w.off + n
	if n > 0 {
		w.fields(fields, at+".")
	}
	if w.off != end {
		panic(fmt.Errorf("%w: %s ends at %d, not %d", errSchema, at, w.off, end))
	}
	w.pad(n)
}

func (w *walker) array(at, kind string) {
	n, each := int(w.number(4, at+": how many")), int(w.number(2, at+": bytes of each"))
	w.zeros(2)
	start := w.off
	for i := range n {
		here := w.off
		switch size := wiretest.Scalars[kind]; {
		case kind == "item":
			w.take(each, fmt.Sprintf("%s %d", at, i))
		case size > 0:
			v := w.number(size, fmt.Sprintf("%s %d", at, i))
			if at == "sizes" {
				w.payloads += int(v)
			}
		default:
			w.fields(w.s.Types[kind], at+".")
		}
		if w.off-here != each {
			panic(fmt.Errorf("%w: an element of %s has %d bytes, not %d", errSchema, at, w.off-here, each))
		}
	}
	w.pad(w.off - start)
}

func (w *walker) options(at, kind string) {
	n := w.number(4, at+": how many")
	w.zeros(4)
	for range n {
		tag := w.number(2, "option, tag")
		w.zeros(2)
		size := int(w.number(4, "option, bytes"))
		name, as := w.s.Option(kind, tag)
		if name == "" {
			panic(fmt.Errorf("%w: options %s have no tag %#x", errSchema, kind, tag))
		}
		start := w.off
		w.field(name, name, as, start)
		if w.off-start != size {
			panic(fmt.Errorf("%w: option %s has %d bytes, not %d", errSchema, name, w.off-start, size))
		}
		w.pad(size)
	}
}

// annotate is a frame as a golden file has it. The error says where it is not as the
// schema says.
func (s *schema) annotate(frame []byte) (text string, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case error:
			err = r
		default:
			panic(r)
		}
	}()
	w := &walker{s: s, b: frame}
	h := DecodeHeader(w.b)
	w.take(HeaderBytes, fmt.Sprintf("%d bytes, %s %s, %s, id %d", h.BodyBytes, h.Kind, h.Op, h.Code, h.ID))
	if h.Code == CodeVersion { // of all versions
		w.take(len(frame)-w.off, "u16 length, text")
		return w.out.String(), nil
	}
	w.fields(s.Body(frame), "")
	if w.off != len(frame) {
		return "", fmt.Errorf("%w: %d bytes are left", errSchema, len(frame)-w.off)
	}
	return w.out.String(), nil
}
