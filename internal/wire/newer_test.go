package wire

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// newer makes of a reply what a newer daemon may send instead: 8 bytes more in each
// element of an array of structs and in each record, and unknown options.
type newer struct {
	s   *schema
	b   []byte
	off int
	out []byte
	pay int // bytes of payloads
}

func (g *newer) take(n int) []byte {
	v := g.b[g.off : g.off+n]
	g.off += n
	g.out = append(g.out, v...)
	return v
}

func (g *newer) fields(fields []string, at string) {
	for _, f := range fields {
		name, kind, _ := strings.Cut(f, " ")
		g.field(at+name, name, kind)
	}
}

func (g *newer) field(at, name, kind string) {
	head, tail, _ := strings.Cut(kind, " ")
	switch {
	case name == "payloads":
		g.take(g.pay + -g.pay&7)
	case name == "zero":
		g.take(atoi(kind))
	case name == "options":
		g.options(kind)
	case head == "bytes":
		g.take(atoi(tail))
	case scalars[kind] > 0:
		if v := number(g.take(scalars[kind])); at == "chunks.bytes" {
			g.pay += int(v)
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

const added = "\x11\x22\x33\x44\x55\x66\x77\x88"

func (g *newer) record(at string, fields []string) {
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

func (g *newer) array(at, kind string) {
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
func (g *newer) options(kind string) {
	start := len(g.out)
	n := number(g.take(4))
	g.take(4)
	for i := n; i > 0; i-- {
		at := len(g.out)
		tag := number(g.take(2))
		g.take(2)
		size := int(number(g.take(4)))
		name, as := g.s.option(kind, tag)
		before := len(g.out)
		g.field(name, name, as)
		if _, ok := g.s.Types[strings.TrimSuffix(as, "[]")]; ok {
			if !strings.HasSuffix(as, "[]") { // an array has grown in its elements
				g.out = append(g.out, added...)
			}
		}
		binary.LittleEndian.PutUint32(g.out[at+4:], uint32(len(g.out)-before))
		g.take(-size & 7)
	}
	binary.LittleEndian.PutUint32(g.out[start:], uint32(n+1))
	g.out = append(g.out, "\x70\x00\x00\x00\x03\x00\x00\x00new\x00\x00\x00\x00\x00"...)
}

// grown is a reply or push with all that a newer daemon may add.
func grown(s *schema, frame []byte) []byte {
	g := &newer{s: s, b: frame}
	g.take(HeaderBytes)
	g.fields(s.body(DecodeHeader(frame)), "")
	return End(g.out, 0)
}

func atoi(s string) (n int) {
	for _, c := range s {
		n = 10*n + int(c-'0')
	}
	return n
}

// hexOf is a frame as a file has it, without comments but the first.
func hexOf(comment string, frame []byte) string {
	var out strings.Builder
	out.WriteString("# " + comment + "\n")
	for ; len(frame) > 0; frame = frame[min(16, len(frame)):] {
		for i, b := range frame[:min(16, len(frame))] {
			if i > 0 {
				out.WriteByte(' ')
			}
			const digits = "0123456789abcdef"
			out.WriteByte(digits[b>>4])
			out.WriteByte(digits[b&15])
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// TestNewerDaemon: with the additions of a newer daemon a reply or a push means the same
// here. The frames are in testdata/wire/newer, for clients in other languages.
func TestNewerDaemon(t *testing.T) {
	s := readSchema(t)
	for _, g := range golden {
		if g.h.Kind == KindRequest {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			frame := grown(s, readGolden(t, g.name))
			text := hexOf("the reply of "+g.name+".hex as a newer daemon may send it", frame)
			path := filepath.Join(goldenDir, "newer", g.name+".hex")
			if *update {
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if file, err := os.ReadFile(path); err != nil || string(file) != text {
				t.Errorf("the file differs: %v", err)
			}
			got := reflect.New(reflect.TypeOf(g.m).Elem()).Interface().(Message)
			if err := got.Decode(frame[HeaderBytes:]); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, g.m) {
				t.Errorf("decoded\n%+v, want\n%+v", got, g.m)
			}
		})
	}
}
