package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// keyRow is a line of the tables of docs/reference/configuration.md: key, default with its
// range, reload, meaning.
var keyRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| `([^`]*)`[^|]* \\| ([^|]*) \\| (.*) \\|$")

// keyRows are those lines.
func keyRows(t *testing.T) [][]string {
	t.Helper()
	data, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	return keyRow.FindAllStringSubmatch(string(data), -1)
}

// The tables of docs/reference/configuration.md name every key once, with its default and
// a meaning.
func TestPageHasEveryKey(t *testing.T) {
	var c Config // zero, so that a missing or wrong default shows
	rows := map[string]int{}
	for _, row := range keyRows(t) {
		key, value := row[1], row[2]
		rows[key]++
		if strings.TrimSpace(row[4]) == "" {
			t.Errorf("%s has no meaning", key)
		}
		// a.b with value v is the file "a: {b: v}".
		file := strings.ReplaceAll(key, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(key, "."))
		d := decoder{source: pagePath, set: map[string]origin{}}
		if !d.decode([]byte(file), &c) || len(d.errs) > 0 {
			t.Errorf("%s: %v", file, d.errs)
		}
	}
	got := map[string]any{}
	leaves(reflect.ValueOf(c), "", func(key string, v reflect.Value) { got[key] = v.Interface() })
	leaves(reflect.ValueOf(Default()), "", func(key string, want reflect.Value) {
		switch {
		case rows[key] != 1:
			t.Errorf("%s has %d rows, want 1", key, rows[key])
		case !reflect.DeepEqual(got[key], want.Interface()):
			t.Errorf("%s is %v in the table; the default is %v", key, got[key], want)
		}
	})
}

// The tables say of exactly the keys that a reload applies when they count.
func TestPageHasEveryLiveKey(t *testing.T) {
	var got, want []string
	for _, row := range keyRows(t) {
		if strings.TrimSpace(row[3]) != "" {
			got = append(got, row[1])
		}
	}
	var walk func(s reflect.Type, path string)
	walk = func(s reflect.Type, path string) {
		for i := range s.NumField() {
			f := s.Field(i)
			switch key := join(path, keyName(f)); {
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, key)
			case isLive(f):
				want = append(want, key)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	if !slices.Equal(got, want) {
		t.Errorf("%s names\n%q, want, in this order,\n%q", pagePath, got, want)
	}
}

// The variables that the pods in deploy set are settings, with values that are good.
func TestDeployedVariables(t *testing.T) {
	for _, path := range []string{"../deploy/sidecar.yaml", "../deploy/kubernetes/daemonset.yaml", "../deploy/compose/compose.yaml"} {
		deployed(t, path)
	}
}

func deployed(t *testing.T, path string) {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	pods, compose := `\{name: (KVSTORED_\w+), value: "?([^}"]*)"?\}`, `(?m)^ +(KVSTORED_\w+): (.+)$`
	for _, m := range regexp.MustCompile(pods+"|"+compose).FindAllStringSubmatch(string(data), -1) {
		env = append(env, m[1]+m[3]+"="+m[2]+strings.Trim(m[4], `'"`))
	}
	if len(env) == 0 {
		t.Fatalf("%s sets no variables", path)
	}
	if _, err := Load("", env, Rules{}); err != nil {
		t.Errorf("%s: %v", path, err)
	}
}

// The configuration in the values of the chart is a good one.
func TestChartValues(t *testing.T) {
	data, err := os.ReadFile("../deploy/helm/kvstored/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Config map[string]any }
	if err := yaml.Unmarshal(data, &values); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(values.Config)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(path, nil, Rules{}); err != nil { // for a node with more memory
		t.Error(err)
	} else if c.CPU.Capacity != 32<<30 {
		t.Errorf("cpu.capacity is %v", c.CPU.Capacity)
	}
}

// The page of ports has every key that says where something listens, and the defaults.
func TestPortsPage(t *testing.T) {
	data, err := os.ReadFile("../docs/reference/ports.md")
	if err != nil {
		t.Fatal(err)
	}
	c := Default()
	for _, want := range []string{"listen.socket", "listen.resp", "admin.listen", "admin.socket", c.Listen.Socket, c.Admin.Listen} {
		if !strings.Contains(string(data), "`"+want+"`") {
			t.Errorf("the page has no `%s`", want)
		}
	}
	for _, suffix := range []string{strings.TrimPrefix(c.AdminSocket(), c.Listen.Socket), strings.TrimPrefix(c.KeeperSocket(), c.Listen.Socket)} {
		if !strings.Contains(string(data), "the same with `"+suffix+"`") {
			t.Errorf("the page has no socket with %s behind it", suffix)
		}
	}
}

// The rules of docs/security.md are ones that may be copied.
func TestSecurityHasRightRules(t *testing.T) {
	const path = "../docs/security.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, rules, ok := strings.Cut(string(data), "```yaml\n")
	if !ok {
		t.Fatalf("%s has no rules", path)
	}
	rules, _, _ = strings.Cut(rules, "```")
	file := "listen: {resp: [\"127.0.0.1:6380\"], resp_password_file: /password}\n" + rules
	if c, err := loadText(t, file); err != nil {
		t.Error(err)
	} else if len(c.Access) < 4 {
		t.Errorf("%s has %d rules", path, len(c.Access))
	}
}

// The keys that the documentation names exist.
func TestDocsNameKeys(t *testing.T) {
	known := map[string]bool{}
	eachKey(reflect.TypeFor[Config](), "", func(key string, _ reflect.StructField) {
		for key != "" {
			known[strings.ReplaceAll(key, "[0]", "")] = true
			key = key[:max(0, strings.LastIndex(key, "."))]
		}
	})
	sections := map[string]bool{}
	for key := range known {
		if section, _, ok := strings.Cut(key, "."); ok {
			sections[section] = true
		}
	}
	var pages []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		found, err := filepath.Glob("../docs/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	named := 0
	name := regexp.MustCompile("`([a-z]+)\\.([a-z0-9_.]+)(?:: [^`]*)?`")
	for _, page := range append(pages, "../README.md", "../deploy/README.md") {
		data, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range name.FindAllStringSubmatch(string(data), -1) {
			if key := m[1] + "." + m[2]; sections[m[1]] && !known[key] && !strings.HasSuffix(key, ".go") {
				t.Errorf("%s names the key %s, which there is not", filepath.Base(page), key)
			} else if sections[m[1]] {
				named++
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d keys were found", named)
	}
}
