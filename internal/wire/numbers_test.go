package wire

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// lacksC is what the C client does not have of the protocol.
var lacksC = []Op{OpBatch, OpWarm, OpHint, OpEvents, OpRead}

// TestNumbersInC: the numbers of the C client are those of the schema, and its header has
// every code.
func TestNumbersInC(t *testing.T) {
	s := readSchema(t)
	numbers := make(map[string]string)
	for _, file := range []string{"kvstored.h", "kvstored.c"} {
		text, err := os.ReadFile(filepath.Join("../../clients/c", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\b([A-Z]+_[A-Z_]+) = (0x[0-9a-f]+|[0-9]+)\b`).FindAllStringSubmatch(string(text), -1) {
			numbers[m[1]] = m[2]
		}
	}
	check := func(name string, want uint64) {
		t.Helper()
		if n, err := strconv.ParseUint(numbers[name], 0, 64); err != nil || n != want {
			t.Errorf("%s is %q in C, want %d", name, numbers[name], want)
		}
	}
	for _, c := range s.Codes {
		check("KVS_"+strings.ToUpper(c[1].(string)), uint64(c[0].(float64)))
	}
	for name, o := range s.Operations {
		if c := "OP_" + strings.ToUpper(name); numbers[c] != "" || !slices.Contains(lacksC, Op(o.Op)) {
			check(c, uint64(o.Op))
		}
	}
	for prefix, enum := range map[string]string{"KVS_RETRY_": "retry", "FORM_": "forms", "CHAIN_": "chain_flags", "KVS_": "tiers"} {
		for name, n := range s.Enums[enum] {
			check(prefix+strings.ToUpper(name), uint64(n))
		}
	}
	for name, n := range s.Enums["features"] {
		if name != "keep" && name != "directory" { // which it cannot ask for
			check("KVS_"+strings.ToUpper(name), uint64(n))
		}
	}
	check("KVS_MAX_STR", s.Limits["str_bytes"])
	check("MAX_BODY", s.Limits["reply_bytes"])
	check("MAX_TAGS", s.Limits["tags"])
	check("MAX_CHUNKS", s.Limits["chain_chunks"])
	check("MAX_DESCRIPTORS", s.Limits["descriptors"])
}
