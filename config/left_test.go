package config

import (
	"errors"
	"strings"
	"testing"
)

// A key that left is named with what replaces it, in a file and in a variable.
func TestKeysThatLeft(t *testing.T) {
	for text, want := range map[string]string{
		"events: {enabled: true}":                  "",
		"events: {enabled: true, batches: 1}":      "events.batches: is no key any more: 1,024 can be asked for again",
		"events: {publish: 127.0.0.1:5557}":        "f.yaml:1:10: events.publish: is no key any more: ZeroMQ is published by `kvstored-router bridge`",
		"events: {tokens: true}":                   "events.tokens: is no key any more",
		"events: {port: 5557}":                     "unknown key",
		"arena: {spin: 0s}":                        "arena: is no key any more: engines are waited for 50 us",
		"cpu: {policy: sieve}":                     `cpu.policy: want lru, lfu, fifo, mru, arc, s3fifo or tenure, not "sieve"; kvstored-lab alone has that policy`,
		"route: {models: [{name: m}], port: 9465}": "route: is no key any more: the router is a program of its own",
	} {
		if _, err := loadText(t, text); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := Load("", []string{"KVSTORED_ROUTE__LISTEN=127.0.0.1:1"}, Rules{})
	if err == nil || !strings.Contains(err.Error(), "KVSTORED_ROUTE__LISTEN: route.listen: is no key any more") {
		t.Error(err)
	}
}

// earlier is the example of an earlier version, every key with the default of then.
const earlier = "testdata/earlier.yaml"

// All keys that left are told at once, each with what there is in its place, and no other
// key of the file is wrong.
func TestAllThatLeft(t *testing.T) {
	_, err := Load(earlier, nil, Rules{})
	var errs Errors
	if !errors.As(err, &errs) {
		t.Fatal(err)
	}
	for _, e := range errs {
		if !strings.Contains(e.Text, "is no key any more: ") {
			t.Error(e)
		}
	}
	if len(errs) != 36 {
		t.Errorf("%d keys and sections left, want 36:\n%v", len(errs), err)
	}
}
