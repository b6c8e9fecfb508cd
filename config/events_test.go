package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
)

func TestEvents(t *testing.T) {
	for text, want := range map[string]string{
		"events: {enabled: true, publish: 127.0.0.1:5557, replay: 127.0.0.1:5558}":   "",
		"events: {enabled: true, publish: /run/k/events, replay: /run/k/replay}":     "",
		"events: {enabled: true, publish: '0.0.0.0:5557', open: true, tokens: true}": "",
		"events: {publish: 127.0.0.1:5557}":                                          "events.enabled",
		"events: {enabled: true, publish: '0.0.0.0:5557'}":                           "open to other machines",
		"events: {enabled: true, publish: 'tcp://*:5557'}":                           "no address",
		"events: {enabled: true, publish: ipc:///run/x}":                             "no address",
		"events: {enabled: true, replay: 127.0.0.1:5558}":                            "events.publish",
		"events: {enabled: true, tokens: true}":                                      "events.publish",
		"events: {enabled: true, publish: 127.0.0.1:5557, replay: 127.0.0.1:5557}":   "listened on already",
		"events: {enabled: true, batches: 0}":                                        "events.batches",
		"events: {enabled: true, port: 5557}":                                        "port",
		"events: {enabled: true, topic: " + strings.Repeat("x", 129) + "}":           "at most 128",
		"events: {enabled: true, publish: 127.0.0.1:9464}":                           "listened on already",
		"events: {enabled: true, publish: /run/k/" + strings.Repeat("x", 120) + "}":  "too long",
		"events: true": "events",
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(path, nil, config.Rules{})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
