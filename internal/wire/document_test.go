package wire

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
	"github.com/kvstored/kvstored/key"
)

// print is what a block of a document says, by its name.
func (s *schema) print(t *testing.T, block string) string {
	t.Helper()
	what, name, _ := strings.Cut(block, " ")
	switch what {
	case "header":
		return joined(s.Header)
	case "error":
		return joined(s.Types["error"])
	case "push":
		return joined(s.Fields(s.Pushes[name].Body))
	case "op":
		return s.printOp(name)
	case "types":
		return s.table("types", func(name string) string { return joined(s.Types[name]) })
	case "options":
		return s.table("options", func(name string) string {
			tags := s.Options[name]
			names := slices.SortedFunc(maps.Keys(tags), func(a, b string) int { return int(tags[a][0].(float64) - tags[b][0].(float64)) })
			for i, n := range names {
				tag := fmt.Sprint(tags[n][0])
				if v := uint16(tags[n][0].(float64)); v&s.Critical != 0 {
					tag = fmt.Sprintf("%#x", v)
				}
				names[i] = fmt.Sprintf("%s = %s %s", n, tag, tags[n][1])
			}
			return joined(names)
		})
	}
	t.Fatalf("a block is called %q", block)
	return ""
}

func joined(fields []string) string { return strings.Join(fields, " · ") }

func (s *schema) printOp(name string) string {
	o := s.Operations[name]
	head := fmt.Sprintf("%s = %d", name, o.Op)
	if o.Right != "" {
		head += ", right " + o.Right
	}
	if o.Waits != "" {
		head += ", waits " + o.Waits + " (without a deadline)"
	}
	return fmt.Sprintf("%s\nrequest: %s\nreply:   %s", head, said(o.Request), said(o.Reply))
}

func said(body any) string {
	if name, ok := body.(string); ok {
		return name
	}
	return joined(new(wiretest.Schema).Fields(body))
}

// table has a line for each name of a part of the schema, in the order of the file.
func (s *schema) table(part string, line func(name string) string) string {
	var out []string
	for _, name := range s.order(part) {
		if part != "types" || name != "error" {
			width := map[string]int{"types": 11, "options": 14}[part]
			out = append(out, fmt.Sprintf("%-*s %s", width, name, line(name)))
		}
	}
	return strings.Join(out, "\n")
}

// order is the names of a part in the order of the file.
func (s *schema) order(part string) (names []string) {
	text, err := os.ReadFile(goldenDir + "/schema.json")
	if err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(string(text), "\n  \""+part+"\": {\n")
	body, _, _ := strings.Cut(rest, "\n  }")
	for _, m := range regexp.MustCompile(`(?m)^    "(\w+)":`).FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	return names
}

// TestDocument: what the documents print is what the schema says.
func TestDocument(t *testing.T) {
	s := readSchema(t)
	printed := map[string]bool{}
	for _, name := range []string{"../../docs/protocol.md", "../../docs/protocol-more.md"} {
		doc, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		now := regexp.MustCompile("(?s)```kv ([a-z_ ]+)\n(.*?)\n```").ReplaceAllFunc(doc, func(block []byte) []byte {
			name, _, _ := strings.Cut(strings.TrimPrefix(string(block), "```kv "), "\n")
			printed[name] = true
			return fmt.Appendf(nil, "```kv %s\n%s\n```", name, s.print(t, name))
		})
		if *update {
			if err := os.WriteFile(name, now, 0o644); err != nil {
				t.Fatal(err)
			}
		} else if !bytes.Equal(now, doc) {
			t.Errorf("%s is not what the schema says: go test ./internal/wire -run TestDocument -update", name)
		}
		if lines := bytes.Count(doc, []byte("\n")); lines > 500 {
			t.Errorf("%s has %d lines, 500 are its limit", name, lines)
		}
	}
	for op := range s.Operations {
		if !printed["op "+op] {
			t.Errorf("no document has the operation %s", op)
		}
	}
}

// TestDocumentTables: the rows of codes and limits are those of the schema.
func TestDocumentTables(t *testing.T) {
	s := readSchema(t)
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Codes {
		if row := fmt.Sprintf("\n| %v | `%v` | %v | ", c[0], c[1], c[2]); !strings.Contains(string(doc), row) {
			t.Errorf("no row %q", row)
		}
	}
	printed := limitRows(string(doc))
	for name, n := range s.Limits {
		if printed[name] != commas(n) {
			t.Errorf("the table has %q of %s, want %s", printed[name], name, commas(n))
		}
	}
}

// limitRows are the limits of a document's table, whose rows have one or several.
func limitRows(doc string) map[string]string {
	rows := make(map[string]string)
	for line := range strings.Lines(doc) {
		cells := strings.Split(line, " | ")
		if len(cells) != 3 {
			continue
		}
		names, values := strings.Split(strings.TrimPrefix(cells[0], "| "), " · "), strings.Split(cells[1], " · ")
		for i := range min(len(names), len(values)) {
			rows[names[i]] = values[i]
		}
	}
	return rows
}

func commas(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// TestTenMinutes: the first frames that the document shows are what this package
// makes of them.
func TestTenMinutes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```hex ten_minutes\n")
	text, _, _ := strings.Cut(rest, "```")
	got := parseHex(t, text)
	chain := Chain{Form: FormHashes, Width: 8, Hashes: bytes.Repeat([]byte{1}, 8)}
	want := AppendRequest(nil, OpHello, 1, &HelloRequest{MinVersion: 2, MaxVersion: 2, Name: "demo", HasSpace: true, Space: key.Space{
		Model: "demo", World: 1, DType: "bf16", ChunkTokens: 4, Method: key.Given,
	}})
	want = AppendRequest(want, OpPut, 2, &PutRequest{Chain: chain, Sizes: ViewU32s([]uint32{5}), Payloads: []byte("hello")})
	want = AppendRequest(want, OpGet, 3, &GetRequest{Chain: chain})
	want = AppendReply(want, OpPut, 2, &StoreReply{Results(nil).Add(Stored{CodeOK, helloSum})})
	want = AppendReply(want, OpGet, 3, &GetReply{Chunks(nil).Add(Chunk{5, 4, helloSum}), []byte("hello")})
	if !bytes.Equal(got, want) {
		t.Errorf("the document has\n%x, want\n%x", got, want)
	}
}

// TestRetired: nothing has the number of what has left the protocol.
func TestRetired(t *testing.T) {
	s := readSchema(t)
	for name, o := range s.Operations {
		if slices.Contains(s.Retired.Operations, o.Op) {
			t.Errorf("operation %s has a number that is retired", name)
		}
	}
	for enum, gone := range s.Retired.Enums {
		for name, n := range s.Enums[enum] {
			if slices.Contains(gone, n) {
				t.Errorf("%s %s has a number that is retired", enum, name)
			}
		}
	}
	for list, gone := range s.Retired.Options {
		for name, o := range s.Options[list] {
			if slices.Contains(gone, o[0].(float64)) {
				t.Errorf("option %s of %s has a tag that is retired", name, list)
			}
		}
	}
}

// TestSchemaNumbers: the numbers of the schema are those of this package.
func TestSchemaNumbers(t *testing.T) {
	s := readSchema(t)
	if s.Version != Version || s.Magic != Magic || s.Critical != optionCritical {
		t.Errorf("version %d, magic %q, critical %#x", s.Version, s.Magic, s.Critical)
	}
	if len(s.Codes) != len(codeNames) {
		t.Errorf("%d codes, want %d", len(s.Codes), len(codeNames))
	}
	for _, c := range s.Codes {
		code := Code(c[0].(float64))
		if code.String() != c[1] || code.Retry().String() != c[2] {
			t.Errorf("%v, want %s, %s", c, code, code.Retry())
		}
	}
	for op, name := range opNames {
		o, ok := s.Operations[name]
		if name == "" {
			continue
		}
		if !ok || o.Op != uint8(op) {
			t.Errorf("%s is %d, want %d", name, o.Op, op)
		}
	}
	for name, want := range map[string]uint64{
		"header_bytes": HeaderBytes, "hello_bytes": MaxHelloBytes, "request_bytes": MaxBodyBytes, "reply_bytes": MaxBodyBytes,
		"least_bytes": LeastBodyBytes, "payload_bytes": MaxPayloadBytes, "str_bytes": MaxStrBytes, "tags": key.MaxTags,
		"chain_chunks": key.MaxChunks, "sums": MaxSums, "ranks": MaxRanks, "groups": MaxGroups, "lengths": MaxLengths, "batch": MaxBatch,
		"kept_chains": KeptChains, "kept_chunks": KeptChunks, "descriptors": MaxFiles, "chunk_tokens": key.MaxChunkTokens, "faults": MaxFaults,
	} {
		if s.Limits[name] != want {
			t.Errorf("limit %s is %d, want %d", name, s.Limits[name], want)
		}
	}
	for enum, names := range map[string][]string{
		"put_modes": putModeNames[:], "forms": formNames[:], "policies": policyNames[:], "retry": retryNames[:],
	} {
		for i, name := range names {
			if s.Enums[enum][name] != uint32(i) || len(s.Enums[enum]) != len(names) {
				t.Errorf("%s %s is %d of %d, want %d", enum, name, s.Enums[enum][name], len(s.Enums[enum]), i)
			}
		}
	}
}
