package config

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeRow is a line of the README's table of keys: key, default, meaning.
var readmeRow = regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| `([^`]*)` \\| (.*) \\|$")

// The README's table names every key once, with its default and a meaning.
func TestReadmeHasEveryKey(t *testing.T) {
	const path = "../README.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(data), "\n## Configuration\n")
	if !ok {
		t.Fatalf("%s has no section Configuration", path)
	}
	section, _, _ = strings.Cut(section, "\n## ")

	var c Config // zero, so that a missing or wrong default shows
	rows := map[string]int{}
	for _, row := range readmeRow.FindAllStringSubmatch(section, -1) {
		key, value := row[1], row[2]
		rows[key]++
		if strings.TrimSpace(row[3]) == "" {
			t.Errorf("%s has no meaning", key)
		}
		// a.b with value v is the file "a: {b: v}".
		file := strings.ReplaceAll(key, ".", ": {") + ": " + value + strings.Repeat("}", strings.Count(key, "."))
		d := decoder{source: path, set: map[string]origin{}}
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

// The table of keys that a reload applies has exactly those, each once.
func TestOperationsHaveEveryLiveKey(t *testing.T) {
	const path = "../docs/operations.md"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(data), "\n## Reload\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_.]+)` \\| .+ \\|$").FindAllStringSubmatch(section, -1) {
		got = append(got, row[1])
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
		t.Errorf("%s names\n%q, want, in this order,\n%q", path, got, want)
	}
}

// What the pod in deploy sets are settings, with values that are good.
func TestDeployedVariables(t *testing.T) {
	const path = "../deploy/sidecar.yaml"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var env []string
	for _, m := range regexp.MustCompile(`\{name: (KVSTORED_\w+), value: "?([^}"]*)"?\}`).FindAllStringSubmatch(string(data), -1) {
		env = append(env, m[1]+"="+m[2])
	}
	if len(env) == 0 {
		t.Fatalf("%s sets no variables", path)
	}
	if _, err := Load("", env, Rules{}); err != nil {
		t.Errorf("%s: %v", path, err)
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
