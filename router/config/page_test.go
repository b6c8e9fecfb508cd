package config

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/kvstored/kvstored/config"
)

var update = flag.Bool("update", false, "write docs/configuration.md anew")

const (
	pagePath = "../docs/configuration.md"
	pageHead = "# Configuration of the router\n\n" +
		"<!-- Made from the comments and tags of package config by `go generate ./config`. Edit them. -->\n\n" +
		"One YAML file, [router.example.yaml](../router.example.yaml) with the defaults; what it says beside these keys is an error. " +
		"A variable such as `KVSTORED_ROUTE__MEMORY` overrides `route.memory`. A change takes a restart. `log` is as of [the daemon](../../docs/reference/configuration.md#log).\n"
)

// comments are the doc comments of the types in route.go and of their fields, as "Route"
// and "Route.Listen".
func comments(t *testing.T) map[string]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "route.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			return true
		}
		spec := decl.Specs[0].(*ast.TypeSpec)
		all[spec.Name.Name] = strings.Join(strings.Fields(decl.Doc.Text()), " ")
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			all[spec.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
		}
		return false
	})
	return all
}

// section is the table of a struct and, behind it, those of the lists in it.
func section(t *testing.T, doc map[string]string, s reflect.Value, path string) string {
	text := fmt.Sprintf("\n### %s\n\n%s\n\n| key | default | values | meaning |\n|---|---|---|---|\n", path, doc[s.Type().Name()])
	deeper := ""
	for i := range s.NumField() {
		f := s.Type().Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		key, value, meaning := path+"."+name, "`"+written(t, s.Field(i))+"`", doc[s.Type().Name()+"."+f.Name]
		if len(meaning) < 12 || !strings.HasSuffix(meaning, ".") {
			t.Errorf("%s has the comment %q; want a sentence", key, meaning)
		}
		if strings.HasSuffix(path, "[]") {
			value = ""
		}
		if rule := f.Type; rule.Kind() == reflect.Slice && rule.Elem().Kind() == reflect.Struct {
			deeper += section(t, doc, reflect.New(rule.Elem()).Elem(), key+"[]")
		}
		values := f.Tag.Get("range")
		if words := f.Tag.Get("oneof"); words != "" {
			values = "`" + strings.ReplaceAll(words, ",", "`, `") + "`"
		}
		text += fmt.Sprintf("| `%s` | %s | %s | %s |\n", key, value, values, meaning)
	}
	return text + deeper
}

// written is a value as the file has it.
func written(t *testing.T, v reflect.Value) string {
	t.Helper()
	switch x := v.Interface().(type) {
	case time.Duration:
		return strings.TrimSuffix(x.String(), "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(x.String(), "m0s")]
	case os.FileMode:
		return fmt.Sprintf(`"%04o"`, uint32(x))
	case config.Bytes:
		return x.String()
	}
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	text, err := yaml.MarshalWithOptions(v.Interface(), yaml.Flow(true))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// docs/configuration.md is what the comments and tags say.
func TestConfigurationPage(t *testing.T) {
	want := pageHead + section(t, comments(t), reflect.ValueOf(Default().Route), "route")
	if *update {
		if err := os.WriteFile(pagePath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(pagePath); err != nil || string(got) != want {
		t.Errorf("%s is not what package config says (%v); `go generate ./config` writes it anew", pagePath, err)
	}
}

// The example has all keys, with their defaults.
func TestExampleIsTheDefault(t *testing.T) {
	const path = "../router.example.yaml"
	c, err := Load(path, nil)
	if err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v\n%+v, want\n%+v", err, c, Default())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeFor[Route]().NumField() {
		name, _, _ := strings.Cut(reflect.TypeFor[Route]().Field(i).Tag.Get("yaml"), ",")
		if !strings.Contains(string(text), "\n  "+name+": ") {
			t.Errorf("it has no route.%s", name)
		}
	}
}
