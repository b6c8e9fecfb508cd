package main

import (
	"slices"
	"strings"
	"testing"
)

func TestWrongOptions(t *testing.T) {
	for args, says := range map[string]string{
		"-rounds 0":            "-rounds: 0: use 1 or more",
		"-keys 1":              "-keys: 1: use 2 or more",
		"-sizes 1MiB,":         `-sizes: "" with 16 values`,
		"-sizes 100":           `-sizes: "100" with 16 values of a call: use whole KiB`,
		"-sizes 8MiB":          "at most 64MiB a call",
		"-sizes 1MiB -keys 65": "at most 64MiB a call",
		"1MiB":                 `"1MiB" is no option`,
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want one that says %q", args, err, says)
		}
	}
	if o, err := parse(nil); err != nil || o.rounds != 5 || o.keys != 16 || !slices.Equal(o.sizes, []int{256 << 10, 1 << 20, 4 << 20}) {
		t.Errorf("%+v, %v", o, err)
	}
}

const report = `{"metrics": {"config": {"num_keys": 4},
	"op_0": {"operation": "Store", "rounds_timed_out": 0, "total_keys": 8, "total_success": 8, "duration_p50_ms": 1.5},
	"op_1": {"operation": "Lookup", "rounds_timed_out": 0, "total_keys": 8, "total_success": 4, "duration_p50_ms": 0.25},
	"op_2": {"operation": "Load", "rounds_timed_out": 0, "total_keys": 8, "total_success": 8, "duration_p50_ms": 3}}}`

// A run in which LMCache did not store, find or load all that it should is no time.
func TestRead(t *testing.T) {
	took, err := read([]byte(report))
	if err != nil || !slices.Equal(took, []timed{{"store", 1.5}, {"lookup", .25}, {"load", 3}}) {
		t.Errorf("%v, %v", took, err)
	}
	for change, says := range map[[2]string]string{
		{`"total_success": 8`, `"total_success": 7`}:           "Store: 7 of 8 values",
		{`"total_success": 4`, `"total_success": 5`}:           "Lookup: 5 of 4 values",
		{`"rounds_timed_out": 0`, `"rounds_timed_out": 1`}:     "1 rounds late",
		{`"op_1"`, `"op_9"`}:                                   "1 operations, not 3",
		{`"metrics"`, `"other"`}:                               "0 operations, not 3",
		{`"total_keys": 8, "total_success": 8`, `"x": "none"`}: "Store: 0 of 0 values",
		{`}}}`, ``}: "unexpected end",
	} {
		if _, err := read([]byte(strings.Replace(report, change[0], change[1], 1))); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q for %q: %v; want one that says %q", change[1], change[0], err, says)
		}
	}
}
