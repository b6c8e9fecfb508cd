package wiretest

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// headerBytes are before each body.
const headerBytes = 16

// Scalars are the sizes of numbers, by their types.
var Scalars = map[string]int{"u8": 1, "u16": 2, "u32": 4, "u64": 8}

// Schema is testdata/wire/schema.json.
type Schema struct {
	Version    uint16
	Magic      string
	Header     []string
	Kinds      map[string]uint8
	Critical   uint16
	Enums      map[string]map[string]uint32
	Codes      [][3]any
	Limits     map[string]uint64
	Notes      map[string]map[string]string // by part, message or type, and what is in it; "" is itself
	Types      map[string][]string
	Options    map[string]map[string][2]any
	Operations map[string]Operation
	Pushes     map[string]Push
	Retired    Retired
}

// Retired is the numbers of what has left the protocol, by its list. Nothing gets them again.
type Retired struct {
	Operations []uint8
	Enums      map[string][]uint32
	Options    map[string][]float64
}

// Operation is a request and its reply. A body is the name of a type, or a list of
// fields.
type Operation struct {
	Op             uint8
	Right, Waits   string
	Request, Reply any
}

// Push is a frame that comes unasked.
type Push struct {
	Op   uint8
	ID   string // what the id of its header is
	Body any
}

// Read reads the file.
func Read(path string) (*Schema, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("wiretest: %w", err)
	}
	s := new(Schema)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("wiretest: %s: %w", path, err)
	}
	return s, nil
}

// Fields are what a body consists of.
func (s *Schema) Fields(body any) []string {
	if name, ok := body.(string); ok {
		return s.Types[name]
	}
	var fields []string
	for _, f := range body.([]any) {
		fields = append(fields, f.(string))
	}
	return fields
}

// Body is the fields of the body of a frame, by the frame's header. It panics where
// the schema has no such frame.
func (s *Schema) Body(frame []byte) []string {
	kind, op, code := frame[4], frame[5], number(frame[6:8])
	if kind == s.Kinds["reply"] && code != 0 {
		return s.Types["error"]
	}
	if kind == s.Kinds["push"] {
		for _, p := range s.Pushes {
			if p.Op == op {
				return s.Fields(p.Body)
			}
		}
	}
	for _, o := range s.Operations {
		switch {
		case o.Op != op:
		case kind == s.Kinds["request"]:
			return s.Fields(o.Request)
		case kind == s.Kinds["reply"]:
			return s.Fields(o.Reply)
		}
	}
	panic(fmt.Sprintf("wiretest: the schema has no frame of kind %d and operation %d", kind, op))
}

// Option is the name and the type of an option by its tag; empty where a list of options
// has none such.
func (s *Schema) Option(list string, tag uint64) (name, kind string) {
	for _, l := range []string{list, "request"} {
		for name, o := range s.Options[l] {
			if uint64(o[0].(float64)) == tag {
				return name, o[1].(string)
			}
		}
	}
	return "", ""
}

// version is the code of the refusal that has another body, in all versions.
func (s *Schema) version() uint64 {
	for _, c := range s.Codes {
		if c[1] == "version" {
			return uint64(c[0].(float64))
		}
	}
	return 0
}

// number is a number of up to 8 bytes.
func number(b []byte) (n uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		n = n<<8 | uint64(b[i])
	}
	return n
}

// head splits the type "bytes 16".
func head(kind string) (word, rest string) {
	word, rest, _ = strings.Cut(kind, " ")
	return word, rest
}
