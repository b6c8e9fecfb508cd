package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// reloadText is Reload of a file f.yaml with this content, for a daemon that
// runs with another.
func reloadText(t *testing.T, running, text string, env ...string) (*Reloaded, error) {
	t.Helper()
	c, err := loadText(t, running, env...)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("f.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Reload(&c, "f.yaml", env, testRules)
}

// What can change changes, what takes a restart stays, and both are named as a
// file has them.
func TestReload(t *testing.T) {
	r, err := reloadText(t, "listen: {mode: \"0600\"}\nlog: {level: warn}\n", `
cpu: {capacity: 1GiB, policy: lfu}
disk: {min_free: 6GiB, paths: [/a, /b]}
listen: {allow_uids: [7, 8]}
lease: {max_age: 90s}
retain: {total: 1GiB}
`, "KVSTORED_STOP__FLUSH=1m1s")
	if err != nil {
		t.Fatal(err)
	}
	want := []Change{
		{"listen.mode", `"0600"`, `"0660"`, false},
		{"listen.allow_uids", "[]", "[7, 8]", true},
		{"cpu.capacity", "4GiB", "1GiB", false},
		{"cpu.policy", "lru", "lfu", true},
		{"disk.paths", "[/var/lib/kvstored]", "[/a, /b]", false},
		{"disk.min_free", "5GiB", "6GiB", true},
		{"lease.max_age", "5m", "1m30s", true},
		{"retain.total", "0", "1GiB", true},
		{"log.level", "warn", "info", true},
	}
	if !slices.Equal(r.Changes, want) {
		t.Errorf("got  %+v\nwant %+v", r.Changes, want)
	}
	next, err := loadText(t, `
listen: {mode: "0600", allow_uids: [7, 8]}
cpu: {policy: lfu}
disk: {min_free: 6GiB}
lease: {max_age: 90s}
stop: {flush: 61s}
retain: {total: 1GiB}
`)
	if err != nil || !reflect.DeepEqual(r.Next, next) {
		t.Errorf("the daemon is to run with %+v (%v), want %+v", r.Next, err, next)
	}
}

// An error is told with its place, and nothing comes of the rest of the file.
func TestReloadErrors(t *testing.T) {
	open := "listen: {resp: [\"0.0.0.0:6379\"], resp_password_file: /p}\n"
	for _, tt := range []struct{ name, running, text, want string }{
		{"a wrong value", "", "log: {level: warn}\nlease: {max_age: never}\n", `f.yaml:2:18: lease.max_age: "never" is not a duration`},
		{"an unknown key", "", "log:\n  levle: warn\n", "f.yaml:2:3: log.levle: unknown key"},
		{"no YAML", "", "log: [\n", "f.yaml:1:6: not valid YAML"},
		{"an empty file", "", " \n\n", "f.yaml is empty; to go back to all defaults write {} into it"},
		{"a key that left", "", "budget: {pins: 0.7}\n", "f.yaml:1:1: budget: is no key any more"},
		{
			"a password that a listener still needs", open, "listen: {resp: []}\n",
			"listen.resp[0]: 0.0.0.0:6379 is open to other machines; set listen.resp_password_file, or use 127.0.0.1; this is beside what runs: listen.resp would change only with a restart",
		},
	} {
		r, err := reloadText(t, tt.running, tt.text)
		if r != nil || err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A path without a file, or with a folder, a pipe or a file that is too large,
// is an error, and no read waits for it.
func TestReloadOfNoFile(t *testing.T) {
	c, dir := Default(), t.TempDir()
	pipe, big := filepath.Join(dir, "pipe"), filepath.Join(dir, "big")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "gone"): "no such file",
		dir:                        "no regular file",
		pipe:                       "no regular file",
		big:                        "is it the right file?",
	} {
		if r, err := Reload(&c, path, nil, testRules); r != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if r, err := Reload(&c, "", nil, testRules); err != nil || len(r.Changes) > 0 {
		t.Errorf("without a file: %+v, %v", r, err)
	}
}

// A problem that shows only when a value is used has the place where it was set.
func TestReloadedError(t *testing.T) {
	r, err := reloadText(t, "", "listen:\n  resp_password_file: /p\n")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"listen.resp_password_file": "f.yaml:2:23: listen.resp_password_file: no: 7",
		"log.level":                 "f.yaml: log.level: no: 7",
	} {
		if got := r.Errorf(path, "no: %d", 7).Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// Every key's tag is a word that docs/reference/configuration.md explains, and no section
// has one.
func TestReloadTags(t *testing.T) {
	data, err := os.ReadFile(pagePath)
	if err != nil {
		t.Fatal(err)
	}
	intro, _, _ := strings.Cut(string(data), pageBegin)
	var check func(reflect.Type)
	check = func(s reflect.Type) {
		for i := range s.NumField() {
			f := s.Field(i)
			tag, ok := f.Tag.Lookup(liveTag)
			section := f.Type.Kind() == reflect.Struct
			if ok && (section || !strings.Contains(intro, "\n| "+tag+" | ")) {
				t.Errorf("%s.%s has the tag %s:%q", s, f.Name, liveTag, tag)
			}
			if section {
				check(f.Type)
			}
		}
	}
	check(reflect.TypeFor[Config]())
}
