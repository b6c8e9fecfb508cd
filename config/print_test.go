package config

import (
	"bytes"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// readBack prints c and reads it back.
func readBack(t *testing.T, c Config) Config {
	t.Helper()
	var out bytes.Buffer
	if err := c.Print(&out); err != nil {
		t.Fatal(err)
	}
	again := Default()
	if _, err := load(&again, "printed.yaml", out.Bytes(), nil, Rules{}); err != nil {
		t.Fatalf("%v\nin\n%s", err, out.Bytes())
	}
	return again
}

func TestPrintReadsBack(t *testing.T) {
	c := Default()
	if got := readBack(t, c); !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, want %+v", got, c)
	}
	c.Listen = Listen{Socket: "/tmp/ a: #'\"\\ é", Mode: 0o6, Group: "12", AllowUIDs: []uint32{0, 1<<32 - 1}, RESPFull: RESPFullError}
	c.CPU = CPU{Capacity: 64_000_000, Policy: "mru", HugePages: "on", MLock: true}
	c.Disk.Paths = []string{"/a, b]"}
	c.Disk.Capacity = 0
	c.Lease.MaxAge = 3_600_000_000_001
	if got := readBack(t, c); !reflect.DeepEqual(got, c) {
		t.Errorf("got %+v, want %+v", got, c)
	}
}

// The example names every key, says something about it, and means the defaults.
func TestExampleIsTheDefault(t *testing.T) {
	const path = "../kvstored.example.yaml"
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var c Config // zero, so that a missing key shows
	d := decoder{source: path, set: map[string]origin{}}
	if !d.decode(data, &c) || len(d.errs) > 0 {
		t.Fatal(d.errs)
	}
	if want := Default(); !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	lines := strings.Split(string(data), "\n")
	leaves(reflect.ValueOf(c), "", func(path string, _ reflect.Value) {
		o, ok := d.set[path]
		if !ok {
			t.Errorf("%s is missing", path)
		} else if !strings.Contains(lines[o.line-1], "  # ") {
			t.Errorf("line %d: %s has no comment", o.line, path)
		}
	})
	for path := range instead {
		line := lines[d.set[path].line-1]
		for value := range valuesLeft {
			if regexp.MustCompile(`\b` + value + `\b`).MatchString(line) {
				t.Errorf("%s offers %q, which left: %s", path, value, line)
			}
		}
	}
}

func TestBytes(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "1": 1, "1023": 1023, "1KiB": 1 << 10, "64KB": 64_000, "1536MiB": 3 << 29, "4GiB": 4 * gib,
		"5GB": 5e9, "2TB": 2e12, "8191PiB": -1, "8388607TiB": 8388607 << 40, "8388608TiB": -1,
		"": -1, "GiB": -1, "-1": -1, "+1": -1, "1.5GiB": -1, "4 GiB": -1, "4G": -1, "4gib": -1, "0x10": -1, "1_000": -1,
		"9223372036854775807": 1<<63 - 1, "9223372036854775808": -1,
	} {
		got, err := ParseBytes(text)
		if want < 0 {
			if err == nil {
				t.Errorf("ParseBytes(%q) = %v, want an error", text, got)
			}
			continue
		}
		if err != nil || got != want {
			t.Errorf("ParseBytes(%q) = %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseBytes(got.String()); err != nil || again != got {
			t.Errorf("%d prints as %q, which reads as %d, %v", got, got.String(), again, err)
		}
	}
}

// FuzzLoad: no input panics, every problem has a place, and an accepted file
// prints as one that is accepted as the same.
func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile("../kvstored.example.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example, "KVSTORED_CPU__CAPACITY=8GiB")
	f.Add([]byte("cpu: {capacity: 64MB}\nlisten: {allow_uids: [1, 2]}"), "KVSTORED_DISK__PATHS=[/a]")
	f.Add([]byte("log:\n  level: |\n    info\n? a\n: b"), "KVSTORED_=")
	f.Add([]byte("a: &b [*b, !!c d]\n<<: *b\n---\n"), "KVSTORED_SPACES=[{match: a}]")
	f.Fuzz(func(t *testing.T, data []byte, env string) {
		if len(data) > maxFileBytes {
			return
		}
		c := Default()
		if _, err := load(&c, "f.yaml", data, []string{env}, testRules); err != nil {
			for _, e := range err.(Errors) {
				if e.Source == "" || e.Text == "" {
					t.Errorf("%#v says not where or what", e)
				}
			}
			return
		}
		if got := readBack(t, c); !reflect.DeepEqual(got, c) {
			t.Errorf("got %+v, want %+v", got, c)
		}
	})
}

// leaves calls fn for every key that is not a section.
func leaves(v reflect.Value, path string, fn func(path string, v reflect.Value)) {
	if v.Kind() != reflect.Struct {
		fn(path, v)
		return
	}
	for i := range v.NumField() {
		leaves(v.Field(i), join(path, keyName(v.Type().Field(i))), fn)
	}
}
