package main

import (
	"slices"
	"strings"
	"testing"
)

func TestOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-rounds 0":         "a round at least",
		"1500":              `["1500"]`,
		"-sizes 1500,":      `-sizes: ""`,
		"-sizes 299":        "use numbers from 300 to 8000",
		"-sizes 1500,33000": "use numbers from 300 to 8000",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", args, err, says)
		}
	}
	if o, err := parse(nil); err != nil || !slices.Equal(o.Sizes, []int{1000, 3000}) {
		t.Errorf("%+v, %v", o, err)
	}
}
