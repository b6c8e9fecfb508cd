package config

import (
	"errors"
	"os"
	"reflect"
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
		"write: {mode: back}":                      `write.mode: want auto or through, not "back"; auto writes when DRAM evicts, once the disk is full`,
		"write: {mode: selective}":                 `write.mode: want auto or through, not "selective"; disk.policy: tenure, the default, writes what is worth it`,
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
		if !e.Left {
			t.Error(e)
		}
	}
	if len(errs) != 36 {
		t.Errorf("%d keys and sections left, want 36:\n%v", len(errs), err)
	}
}

// The file that Rewrite prints means what the earlier one meant, and has its comments.
func TestRewrite(t *testing.T) {
	text, taken, err := Rewrite(earlier)
	if err != nil {
		t.Fatal(err)
	}
	if len(taken) != 36 {
		t.Errorf("%d keys were taken out", len(taken))
	}
	if c, err := loadText(t, string(text)); err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v: %+v, want the defaults", err, c)
	}
	old, err := os.ReadFile(earlier)
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(string(old), "\n")
	for line := range strings.SplitSeq(string(text), "\n") {
		at := 0
		for at < len(was) && was[at] != line {
			at++
		}
		if at == len(was) {
			t.Errorf("%q is no line of the earlier file, or moved", line)
			continue
		}
		was = was[at+1:]
	}
}

// Keys within braces and in lists leave by themselves.
func TestRewriteWithinLines(t *testing.T) {
	for old, want := range map[string]string{
		"":                               "",
		"cpu: {capacity: 1GiB} # mine\n": "cpu: {capacity: 1GiB} # mine\n",
		"write: {mode: through, queue: 1GiB} # b\n":                                                                            "write: {mode: through} # b\n",
		"write: {queue: 1GiB, mode: through}\n":                                                                                "write: {mode: through}\n",
		"write: {queue: 1GiB}\n":                                                                                               "write: {}\n",
		"events: {topic: \"a, b}\", enabled: true}\n":                                                                          "events: {enabled: true}\n",
		"events: {topic: [a, {b: c}], tokens: true, enabled: true, batches: 1}\n":                                              "events: {enabled: true}\n",
		"spaces:\n- priority: 1 # p\n  match: a\n- match: b\n  priority: 2\n  max_age: 1h\n":                                   "spaces:\n- match: a\n- match: b\n  max_age: 1h\n",
		"events:\n  topic:\n  - a\n  - b\n  enabled: true\n":                                                                   "events:\n  enabled: true\n",
		"events:\n  topic:\n  - a\n# of cpu\ncpu: {mlock: true}\n":                                                             "events:\n# of cpu\ncpu: {mlock: true}\n",
		"events: {topic: {a: 1,\n  b: [2,\n3]}, enabled: true}\n":                                                              "events: {enabled: true}\n",
		"events: {enabled: true,\n  topic: a}\n":                                                                               "events: {enabled: true,\n  }\n",
		"events: {enabled: true,\n  topic: a,\n  batches: 1} # c\n":                                                            "events: {enabled: true,\n  \n  } # c\n",
		"events:\n  topic: {a: 1,\n    b: 2\n  }\n  enabled: true\n":                                                           "events:\n  enabled: true\n",
		"events:\n  topic: |\n    a\n    # b\n\n  enabled: true\n":                                                             "events:\n\n  enabled: true\n",
		"events:\n  topic: \"ä # {\" # ä\n  enabled: true\n":                                                                   "events:\n  enabled: true\n",
		"cpu: {policy: sieve} # c\ndisk: {policy: \"gdsf\", capacity: 1GiB}\n":                                                 "cpu: {policy: lru} # c\ndisk: {policy: tenure, capacity: 1GiB}\n",
		"write:\n  # of mode\n  mode: 'back'  # of back\n  queue: 1GiB\n":                                                      "write:\n  # of mode\n  mode: auto  # of back\n",
		"disk: {policy: lru}\nwrite: {queue: 1GiB, mode: selective, min_hits: 2}\n":                                            "disk: {policy: lru}\nwrite: {mode: auto}\n",
		"arena:\n  puts: direct\n\n  spin: 1ms\n    # of spin\n# of pin\npin: {max_age: 1m}\n\n# of cpu\ncpu: {mlock: true}\n": "# of pin\n\n# of cpu\ncpu: {mlock: true}\n",
	} {
		path := t.TempDir() + "/f.yaml"
		if err := os.WriteFile(path, []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, _, err := Rewrite(path); err != nil || string(got) != want {
			t.Errorf("%q becomes %q, %v; want %q", old, got, err, want)
		}
	}
	path := t.TempDir() + "/f.yaml"
	if err := os.WriteFile(path, []byte("pin: {max_age: 1m}\ncpu: {policy: sieve}\ndisk: {policy: best}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, taken, err := Rewrite(path); string(got) != "cpu: {policy: lru}\ndisk: {policy: best}\n" || len(taken) != 2 || !strings.HasSuffix(taken[1].Text, "; the new file has lru") || err == nil || !strings.Contains(err.Error(), `2:16: disk.policy: want lru`) {
		t.Errorf("%q, %v, %v", got, taken, err)
	}
}
