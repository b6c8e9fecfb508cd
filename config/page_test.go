package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/policy"
)

var update = flag.Bool("update", false, "write the tables of docs/reference/configuration.md anew")

const (
	pagePath  = "../docs/reference/configuration.md"
	pageBegin = "<!-- Made from the comments and tags of package config by `go generate ./config`. Edit them, not what follows. -->\n"
)

// comments are the doc comments of this package's types and of their fields, as
// "Listen" and "Listen.Socket".
type comments map[string]string

func readComments(t *testing.T) comments {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	doc := comments{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			if types, ok := decl.(*ast.GenDecl); ok && types.Tok == token.TYPE {
				doc.add(types)
			}
		}
	}
	return doc
}

func (doc comments) add(types *ast.GenDecl) {
	spec := types.Specs[0].(*ast.TypeSpec)
	doc[spec.Name.Name] = oneParagraph(types.Doc)
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			doc[spec.Name.Name+"."+name.Name] = oneParagraph(f.Doc)
		}
	}
}

func oneParagraph(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// page writes the tables of docs/reference/configuration.md.
type page struct {
	strings.Builder
	doc comments
}

// section writes the table of a struct, and behind it the tables of the structs in it.
func (p *page) section(s reflect.Value, path string) {
	var deeper []int
	rows := 0
	for i := range s.NumField() {
		f := s.Type().Field(i)
		if f.Type.Kind() == reflect.Struct || isRules(f.Type) {
			deeper = append(deeper, i)
			continue
		}
		if rows++; rows == 1 {
			p.heading(path, s.Type())
		}
		p.row(join(path, keyName(f)), f, oneLine(s.Field(i)), p.doc[s.Type().Name()+"."+f.Name])
	}
	for _, i := range deeper {
		f := s.Type().Field(i)
		key, v := join(path, keyName(f)), s.Field(i)
		if isRules(f.Type) {
			p.heading(key, f.Type.Elem())
			p.row(key, f, oneLine(v), "The rules, in order; a rule has the keys below.")
			p.fields(f.Type.Elem(), key+"[].", f.Tag.Get(liveTag))
			continue
		}
		p.section(v, key)
	}
}

// fields writes the rows of what one rule of a list has, which a reload applies as the list.
func (p *page) fields(rule reflect.Type, path, reload string) {
	value := reflect.Zero(rule)
	for i := range rule.NumField() {
		f := rule.Field(i)
		f.Tag += reflect.StructTag(fmt.Sprintf(" %s:%q", liveTag, reload))
		p.row(path+keyName(f), f, oneLine(value.Field(i)), p.doc[rule.Name()+"."+f.Name])
	}
}

func (p *page) heading(path string, s reflect.Type) {
	fmt.Fprintf(p, "\n### %s\n\n%s\n\n| key | default | reload | meaning |\n|---|---|---|---|\n", path, p.doc[s.Name()])
}

func (p *page) row(key string, f reflect.StructField, value, meaning string) {
	value = "`" + value + "`"
	if of := values(f.Tag); of != "" {
		value += "; " + of
	}
	fmt.Fprintf(p, "| `%s` | %s | %s | %s |\n", key, value, f.Tag.Get(liveTag), meaning)
}

// values says what the tags of a key allow, as a reader has it.
func values(tag reflect.StructTag) string {
	if words := tag.Get("oneof"); words != "" {
		return "`" + strings.ReplaceAll(words, ",", "`, `") + "`"
	}
	r := spanOf(tag)
	if r == (span{}) || r.most == "" && (r.least == "0" || r.least == "0s") && !r.zero { // which goes without saying
		return ""
	}
	return r.String()
}

// The tables of docs/reference/configuration.md are what this package's comments and tags
// say.
func TestConfigurationPage(t *testing.T) {
	data, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	intro, old, ok := strings.Cut(string(data), pageBegin)
	if !ok {
		t.Fatalf("%s does not have the line %s", pagePath, pageBegin)
	}
	c := Default()
	p := page{doc: readComments(t)}
	p.section(reflect.ValueOf(c), "")
	if *update {
		if err := os.WriteFile(pagePath, []byte(intro+pageBegin+p.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if old != p.String() {
		t.Errorf("%s is not what package config says; `go generate ./config` writes it anew", pagePath)
	}
}

// eachKey calls fn for every key and its field, those of rules with [0] behind
// their list.
func eachKey(s reflect.Type, path string, fn func(key string, f reflect.StructField)) {
	for i := range s.NumField() {
		f := s.Field(i)
		key := join(path, keyName(f))
		switch {
		case f.Type.Kind() == reflect.Struct:
			eachKey(f.Type, key, fn)
		case isRules(f.Type):
			fn(key, f)
			eachKey(f.Type.Elem(), key+"[0]", fn)
		default:
			fn(key, f)
		}
	}
}

// Every key has a sentence.
func TestEveryKeyIsExplained(t *testing.T) {
	doc := readComments(t)
	var walk func(s reflect.Type)
	walk = func(s reflect.Type) {
		for i := range s.NumField() {
			f := s.Field(i)
			switch {
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type)
				continue
			case isRules(f.Type):
				walk(f.Type.Elem())
				continue
			}
			name := s.Name() + "." + f.Name
			if text := doc[name]; len(text) < 12 || !strings.HasSuffix(text, ".") {
				t.Errorf("%s has the comment %q; want a sentence", name, text)
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}

// The tags that docs/reference/configuration.md is made of say what Load accepts: the ends
// of each range, and nothing beyond; each word, and no other.
func TestTagsAreWhatLoadAccepts(t *testing.T) {
	checked := 0
	eachKey(reflect.TypeFor[Config](), "", func(key string, f reflect.StructField) {
		good, bad := examples(t, key, f)
		checked += len(good) + len(bad)
		for _, value := range good {
			if text := aboutKey(t, key, value); text != "" {
				t.Errorf("%s: %s is refused, and its tag allows it: %s", key, value, text)
			}
		}
		for _, value := range bad {
			if aboutKey(t, key, value) == "" {
				t.Errorf("%s: %s is accepted, and its tag does not allow it", key, value)
			}
		}
	})
	if checked < 100 {
		t.Errorf("only %d values were tried", checked)
	}
	for _, tier := range []reflect.Type{reflect.TypeFor[CPU](), reflect.TypeFor[Disk]()} {
		f, _ := tier.FieldByName("Policy")
		if got, want := f.Tag.Get("oneof"), strings.Join(policy.All(), ","); got != want {
			t.Errorf("%s.Policy has oneof:%q; the policies are %q", tier.Name(), got, want)
		}
	}
}

// examples are values that the tags of a key allow, and others. Zero is what
// switches a key off where it is allowed, and so no size to try beside others.
func examples(t *testing.T, key string, f reflect.StructField) (good, bad []string) {
	if words := f.Tag.Get("oneof"); words != "" {
		wrap := "%s"
		if f.Type.Kind() == reflect.Slice {
			wrap = "[%s]"
		}
		for _, word := range strings.Split(words, ",") {
			good = append(good, fmt.Sprintf(wrap, word))
		}
		return good, []string{fmt.Sprintf(wrap, "nonesuch")}
	}
	r := spanOf(f.Tag)
	if r == (span{}) {
		return nil, nil
	}
	below, above := step(t, f.Type, r.least, -1), ""
	if r.above {
		bad = append(bad, r.least)
		good = append(good, step(t, f.Type, r.least, 1))
	} else {
		good = append(good, r.least)
	}
	bad = append(bad, below)
	if r.most != "" {
		above = step(t, f.Type, r.most, 1)
		good, bad = append(good, r.most), append(bad, above)
	}
	if r.zero {
		good = append(good, "0")
	}
	return good, bad
}

// step is the value beside one that is written as a file has it.
func step(t *testing.T, kind reflect.Type, text string, by int) string {
	t.Helper()
	v := reflect.New(kind).Elem()
	if err := setText(v, text); err != nil {
		t.Fatal(err)
	}
	switch {
	case kind == durationType:
		return (time.Duration(v.Int()) + time.Duration(by)).String()
	case v.Kind() == reflect.Float64:
		return fmt.Sprint(v.Float() + 0.001*float64(by))
	}
	return fmt.Sprint(v.Int() + int64(by))
}

// aboutKey is what Load says of a value about the key itself, in a file that has
// nothing else but what a rule of a list needs.
func aboutKey(t *testing.T, key, value string) string {
	t.Helper()
	beside := map[string]string{
		"spaces[0]": `match: "*", quota: 64MiB`,
		"access[0]": `uids: [1], match: "*", rights: [read]`,
	}
	list, field, isRule := strings.Cut(key, "].")
	file := strings.ReplaceAll(key, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(key, "."))
	if isRule {
		list += "]"
		others := ""
		for _, kv := range strings.Split(beside[list], ", ") {
			if name, _, _ := strings.Cut(kv, ":"); name != field && !(field == "front" && name == "match") {
				others += kv + ", "
			}
		}
		file = fmt.Sprintf("%s: [{%s%s: %s}]", strings.ReplaceAll(strings.TrimSuffix(list, "[0]"), ".", ": {"), others, field, value) + strings.Repeat("}", strings.Count(list, "."))
	}
	if field == "front" {
		file += "\nlisten: {resp: [/run/r.sock]}"
	}
	c := Default()
	_, err := load(&c, "f.yaml", []byte(file+"\n"), nil, Rules{})
	for _, line := range strings.Split(errorText(err), "\n") {
		if strings.Contains(line, " "+key+": ") || strings.Contains(line, " "+key+"[") {
			return line
		}
	}
	return ""
}
