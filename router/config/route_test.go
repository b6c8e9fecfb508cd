package config_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/router/config"
)

// Variables override keys; the daemon's are passed over, and no others.
func TestVariables(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte("route: {memory: 2MiB}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"KVSTORED_ROUTE__MEMORY=4MiB", "KVSTORED_LOG__LEVEL=warn", "KVSTORED_CPU__CAPACITY=64MiB", "KVSTORED_SOCKET=/s"}
	if c, err := config.Load(path, env); err != nil || c.Route.Memory != 4<<20 || c.Log.Level != "warn" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, wrong := range []string{"KVSTORED_ROUT__MEMORY=1", "KVSTORED_ROUTE__MEMRY=1", "KVSTORED_CPU__CAPACTY=1", "KVSTORED_ROUTE=1"} {
		if _, err := config.Load(path, []string{wrong}); err == nil || !strings.Contains(err.Error(), "KVSTORED_") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

// The daemon's file is told from one with mistakes, in one line.
func TestDaemonsFile(t *testing.T) {
	_, err := config.Load("../../kvstored.example.yaml", nil)
	if err == nil || !strings.Contains(err.Error(), "listen: this is the daemon's file") || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
}

func TestRoute(t *testing.T) {
	models := "models: [{name: m, block_tokens: 16, chunk_tokens: 256}]"
	worker := func(text string) string { return "route: {" + models + ", workers: [{id: a, model: m, " + text + "}]}" }
	for text, want := range map[string]string{
		"route: {" + models + "}": "",
		worker("events: 'tcp://127.0.0.1:5557', replay: 'tcp://[::1]:1', kvstored: /run/kvstored/kvstored.sock"): "",
		worker("events: post, engine: sglang, ttl: 30s, prefill: 1, load_disk: -1"):                              "",
		"route: {listen: '0.0.0.0:9465', token_file: /run/token, socket: /run/r.sock}":                           "",
		"route: {listen: ''}":                   "",
		"route: {listen: '0.0.0.0:9465'}":       "route.token_file",
		"route: {listen: /run/x}":               "write host:port",
		"route: {listen: '9465'}":               "no address",
		"route: {socket: r.sock}":               "route.socket",
		"route: {mode: '0400'}":                 "route.mode",
		"route: {token_file: token}":            "absolute path",
		"route: {allow: ['*']}":                 "allows nothing",
		"route: {allow: ['10.0.0.1:5557']}":     "without a port",
		"route: {memory: 1KiB}":                 "route.memory",
		"route: {max_workers: 0}":               "route.max_workers",
		"route: {temperature: -1}":              "route.temperature",
		"route: {temperature: .nan}":            "route.temperature",
		"route: {grace: 10ms}":                  "route.grace",
		"route: {reservation: 0s}":              "route.reservation",
		"route: {port: 1}":                      "unknown key",
		"route: {models: [{name: m}]}":          "chunk_tokens too",
		"route: {models: [{block_tokens: 16}]}": "models[0].name",
		"route: {models: [{name: m, block_tokens: 1}, {name: m, block_tokens: 1}]}":         "there twice",
		"route: {models: [{name: m, block_tokens: 1, chunk_hash: md5}]}":                    "chunk_hash",
		"route: {" + models + ", workers: [{model: m}]}":                                    "workers[0].id",
		"route: {" + models + ", workers: [{id: a, model: x}]}":                             "none of route.models",
		"route: {" + models + ", workers: [{id: a, model: m}, {id: a, model: m}]}":          "there twice",
		"route: {" + models + ", workers: [{id: a, model: m}, {id: a, rank: 1, model: m}]}": "",
		worker("events: 'tcp://10.0.0.1:5557'"):                                             "route.allow has no network",
		worker("events: 'tcp://127.0.0.1'"):                                                 "workers[0].events",
		worker("kvstored: /tmp/kvstored.sock"):                                              "route.allow has no path",
		worker("replay: post"):                                                              "workers[0].replay",
		worker("ttl: 1ms"):                                                                  "workers[0].ttl",
		worker("engine: trt"):                                                               "workers[0].engine",
		worker("prefill: fast"):                                                             "workers[0].prefill",
	} {
		path := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := config.Load(path, nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
