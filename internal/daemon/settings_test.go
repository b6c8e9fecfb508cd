package daemon

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
)

// liveKeys are the keys that the configuration says a reload applies.
func liveKeys() map[string]bool {
	keys := make(map[string]bool)
	var walk func(t reflect.Type, prefix string)
	walk = func(t reflect.Type, prefix string) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			switch {
			case f.Tag.Get("reload") != "":
				keys[prefix+name] = true
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, prefix+name+".")
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
	return keys
}

// TestReloadReachesParts: another value of each key that a reload applies is
// another setting of a part of the daemon.
func TestReloadReachesParts(t *testing.T) {
	values := map[string]string{
		"listen.allow_uids": "[7]", "listen.admin_uids": "[7]", "listen.resp_full": "error",
		"chunk.tokens": "32", "chunk.hash": "xxh64", "chunk.save_unfull": "true",
		"cpu.policy": "lfu", "disk.policy": "lfu", "disk.min_free": "7GiB",
		"disk.write_budget": "1GiB", "disk.scrub_rate": "1MiB", "write.unsafe_age": "1m",
		"prefetch.policy": "best_effort", "prefetch.deadline": "3s", "prefetch.per_1024_tokens": "1s",
		"lease.max_age": "1m", "retain.total": "1GiB", "retain.uid": "1GiB",
		"access": `[{uids: [7], match: "*", rights: [read]}]`, "spaces": `[{match: a, quota: 64MiB}]`, "log.level": "warn",
	}
	c := config.Default()
	was := settingsOf(&c, "")
	for path := range liveKeys() {
		if path == "stop.flush" {
			continue // what runs is asked for it at the end
		}
		if path == "listen.resp_password_file" {
			if reflect.DeepEqual(settingsOf(&c, "secret"), was) {
				t.Errorf("another password changes nothing")
			}
			continue
		}
		// a.b with value v is the file "a: {b: v}".
		file := strings.ReplaceAll(path, ".", ": {") + ": " + values[path] + strings.Repeat("}", strings.Count(path, "."))
		from := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(from, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(from, nil, config.Rules{})
		if err != nil {
			t.Fatalf("%v (this table wants another value for each key that can change)", err)
		}
		if reflect.DeepEqual(settingsOf(&c, ""), was) {
			t.Errorf("%s changes nothing", file)
		}
	}
}

// TestRemoteLimits: what the configuration allows in flight is what the tier
// keeps to.
func TestRemoteLimits(t *testing.T) {
	cfg := config.Default()
	cfg.Remote.S3.Concurrency = 7
	if o := remoteOptions(&cfg.Remote.S3, zerolog.Nop()); o.Concurrency != 7 {
		t.Errorf("%d requests in flight; want 7", o.Concurrency)
	}
}
