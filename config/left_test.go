package config

import (
	"strings"
	"testing"
)

// A key that left is named with what replaces it, in a file and in a variable.
func TestKeysThatLeft(t *testing.T) {
	for text, want := range map[string]string{
		"events: {enabled: true, batches: 1}":      "",
		"events: {enabled: true, batches: 0}":      "events.batches",
		"events: {publish: 127.0.0.1:5557}":        "f.yaml:1:10: events.publish: is no key any more: ZeroMQ is published by `kvstored-router bridge`",
		"events: {tokens: true}":                   "events.tokens: is no key any more",
		"events: {port: 5557}":                     "unknown key",
		"arena: {spin: 0s}":                        "arena.spin: is no key any more: how long is fixed now",
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
