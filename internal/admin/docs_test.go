package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/httpd"
)

func document(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/admin-api.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDocumentHasEveryCall: the table has the calls of routes, in their order, with
// their rights.
func TestDocumentHasEveryCall(t *testing.T) {
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:GET|PUT|POST|DELETE) [^`]+)` \\| ([^|]+) \\|").FindAllStringSubmatch(document(t), -1) {
		got = append(got, row[1]+": "+row[2])
	}
	for _, r := range routes() {
		where := string(r.scope)
		if r.path == "/v1/forget" {
			where = "its space" // which the call itself looks at
		}
		want = append(want, r.method+" "+r.path+": "+where)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDocumentHasEveryCode: so does the table of errors.
func TestDocumentHasEveryCode(t *testing.T) {
	got := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\|").FindAllStringSubmatch(document(t), -1) {
		if c, known := codes[Code(row[1])]; !known || fmt.Sprint(c.status) != row[2] {
			t.Errorf("the document has %s with status %s", row[1], row[2])
		}
		got[row[1]] = true
	}
	if len(got) != len(codes) {
		t.Errorf("the document has %d of %d codes", len(got), len(codes))
	}
}

// TestDocumentHasEveryField: the JSON under each call is its request and its reply,
// with every field that the types have, and no other.
func TestDocumentHasEveryField(t *testing.T) {
	sections := strings.Split(document(t), "\n### ")[1:]
	for i, r := range routes() {
		heading, text, _ := strings.Cut(sections[i], "\n")
		if heading != r.method+" "+r.path {
			t.Fatalf("section %d is of %s, want %s %s", i, heading, r.method, r.path)
		}
		text, _, _ = strings.Cut(text, "\n## ")
		var blocks []string
		for _, m := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(text, -1) {
			blocks = append(blocks, m[1])
		}
		request, reply := r.types()
		want := []any{reply}
		if _, none := request.(*None); !none {
			want = []any{request, reply}
		}
		if len(blocks) != len(want) {
			t.Errorf("%s has %d blocks of JSON, want %d", heading, len(blocks), len(want))
			continue
		}
		for i, v := range want {
			if err := httpd.Decode([]byte(blocks[i]), v); err != nil {
				t.Errorf("%s: %v", heading, err)
			}
			var have any
			if err := json.Unmarshal([]byte(blocks[i]), &have); err != nil {
				t.Error(err)
			}
			if lacks := lacking(reflect.TypeOf(v).Elem(), have); lacks != "" {
				t.Errorf("%s: no field %s in %s", heading, lacks, blocks[i])
			}
		}
	}
}

// lacking is a field of a type that a JSON value does not have; "" if there is none.
func lacking(of reflect.Type, have any) string {
	switch of.Kind() {
	case reflect.Pointer:
		return lacking(of.Elem(), have)
	case reflect.Slice:
		list, _ := have.([]any)
		if len(list) == 0 {
			return "within an empty list"
		}
		return lacking(of.Elem(), list[0])
	case reflect.Struct:
		object, ok := have.(map[string]any)
		if !ok {
			return ""
		}
		for i := range of.NumField() {
			f := of.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !f.IsExported() || name == "-" {
				continue
			}
			value, there := object[name]
			if f.Anonymous && name == "" {
				value, there = have, true // its fields stand with the others
			}
			if !there {
				return cmp.Or(name, f.Name)
			}
			if within := lacking(f.Type, value); within != "" {
				return strings.TrimPrefix(name+"."+within, ".")
			}
		}
	}
	return ""
}
