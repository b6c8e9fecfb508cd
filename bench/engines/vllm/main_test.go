package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-rounds 0":         "a round at least",
		"1500":              `["1500"]`,
		"-sizes 1500,":      `-sizes: ""`,
		"-sizes 511":        "use numbers from 512 to 32000",
		"-sizes 1500,33000": "use numbers from 512 to 32000",
		"-model gemma":      "use llama or narrow",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", args, err, says)
		}
	}
	if o, err := parse(nil); err != nil || o.Time != 14*time.Minute || !slices.Equal(o.Sizes, []int{1500, 6000, 24000}) {
		t.Errorf("%+v, %v", o, err)
	}
}

// Each column is one of an engine that there is.
func TestColumns(t *testing.T) {
	have := connectors("/dir")
	for _, c := range append(fromMemory, fromDisk...) {
		if _, ok := have[c.engine]; !ok || !slices.Contains(engines, c.engine) {
			t.Errorf("%s: there is no engine %s", c.name, c.engine)
		}
	}
	if len(have) != len(engines) {
		t.Errorf("%d engines, %d in their order", len(have), len(engines))
	}
}
