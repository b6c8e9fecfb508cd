package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// testRules is a machine with 8 GiB and two policies, run by root.
var testRules = Rules{MemoryBytes: 8 << 30, MemoryFrom: "memory.max"}

// loadText is Load of a file f.yaml with this content.
func loadText(t *testing.T, text string, env ...string) (Config, error) {
	t.Helper()
	c := Default()
	_, err := load(&c, "f.yaml", []byte(text), env, testRules)
	return c, err
}

// errorText is err with its lines, or "" for none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestErrors(t *testing.T) {
	tests := []struct {
		name, file string
		env        []string
		want       string // lines
	}{
		{name: "empty file"},
		{name: "only comments", file: "# nothing\n"},
		{name: "empty section", file: "cpu:\n  # capacity: 8GiB\n"},
		{
			name: "all problems at once, in the file's order, then the environment's",
			file: "log: {level: loud}\ncpu:\n  capacity: 4gb\n  polcy: lru\nlease: {max_age: 0s}\n",
			env:  []string{"KVSTORED_STOP__FLUSH=soon", "PATH=/bin"},
			want: `
f.yaml:1:14: log.level: want trace, debug, info, warn or error, not "loud"
f.yaml:3:13: cpu.capacity: "4gb" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:4:3: cpu.polcy: unknown key; known here: capacity, policy, hugepages, mlock, keep
f.yaml:5:18: lease.max_age: want above 0s, not 0s
KVSTORED_STOP__FLUSH: stop.flush: "soon" is not a duration; write a number with a unit, such as 25us, 10s or 5m`,
		},
		{
			name: "what may be retained",
			file: "retain: {total: 1GiB, uid: 2GiB}\n",
			want: `
f.yaml:1:28: retain.uid: 2GiB is more than retain.total, 1GiB, of all users; lower it, or raise that`,
		},
		{
			name: "what may be retained, of other kinds",
			file: "retain: {total: much, uid: -1, priority: 5}\n",
			want: `
f.yaml:1:17: retain.total: "much" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:1:28: retain.uid: "-1" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:1:32: retain.priority: unknown key; known here: total, uid`,
		},
		{
			name: "what is wrong with one key hides nothing about its neighbours",
			file: "cpu: {capacity: 4gb, policy: best}\ndisk: {min_free: -3MiB, paths: [x, 7]}\nwrite: {moed: back, unsafe_age: 1ms}\nlimits: {memory: lots, connections: 7}\nlisten: {socket: x, resp_password_file: 7, resp: [\"0.0.0.0:1\"]}\n",
			want: `
f.yaml:1:17: cpu.capacity: "4gb" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:1:30: cpu.policy: want lru, lfu, fifo, mru, arc, s3fifo or tenure, not "best"
f.yaml:2:18: disk.min_free: "-3MiB" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:2:33: disk.paths[0]: want an absolute path, not "x"
f.yaml:2:36: disk.paths[1]: want a string; put quotes around 7
f.yaml:3:9: write.moed: unknown key; known here: mode, unsafe_age
f.yaml:3:33: write.unsafe_age: want 0, or at least 1s, not 1ms
f.yaml:4:18: limits.memory: "lots" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:4:37: limits.connections: want 64 to 65534, not 7
f.yaml:5:18: listen.socket: want an absolute path, not "x"
f.yaml:5:41: listen.resp_password_file: want a string; put quotes around 7`,
		},
		{
			name: "one address for two", file: "listen: {socket: /a, resp: [/b, /a, \"127.0.0.1:1\", /b, \"127.0.0.1:1\"]}\n",
			want: `
f.yaml:1:33: listen.resp[1]: /a is listened on already; use an address of its own
f.yaml:1:52: listen.resp[3]: /b is listened on already; use an address of its own
f.yaml:1:56: listen.resp[4]: 127.0.0.1:1 is listened on already; use an address of its own`,
		},
		{
			name: "one address for two, written differently", file: "listen: {socket: /a/s, resp: [/a/./s, \"127.0.0.1:9464\", \"127.0.0.1:0\", \"127.0.0.1:0\"]}\n",
			want: `
f.yaml:1:31: listen.resp[0]: /a/s is listened on already; use an address of its own
f.yaml:1:39: listen.resp[1]: 127.0.0.1:9464 is listened on already; use an address of its own`,
		},
		{
			name: "keys that have left", file: "listen: {lm: \"0.0.0.0:65432\"}\n", env: []string{"KVSTORED_LISTEN__LM_OPEN=true"},
			want: `
f.yaml:1:10: listen.lm: is no key any more: lm:// is not spoken any more; take LMCache's plug-in or L2 adapter, or its Redis client at listen.resp
KVSTORED_LISTEN__LM_OPEN: listen.lm_open: is no key any more: lm:// is not spoken any more, so that there is nothing to open; take it out`,
		},
		{
			name: "resp_full that is no word of ours",
			file: "listen: {resp_full: errors}\n", env: []string{"KVSTORED_LISTEN__RESP_FULL=Drop"},
			want: `
KVSTORED_LISTEN__RESP_FULL: listen.resp_full: want drop or error, not "Drop"`,
		},
		{
			name: "resp_full that Redis has", file: "listen: {resp_full: allkeys-lru}\n",
			want: `f.yaml:1:21: listen.resp_full: want drop or error, not "allkeys-lru"`,
		},
		{
			name: "resp_full empty", file: "listen: {resp_full: \"\"}\n",
			want: `f.yaml:1:21: listen.resp_full: want drop or error, not ""`,
		},
		{
			name: "resp_full as a switch", file: "listen: {resp_full: false}\n",
			want: `f.yaml:1:21: listen.resp_full: want a string; put quotes around false`,
		},
		{
			name: "resp_full as a list", file: "listen: {resp_full: [drop, error]}\n",
			want: `f.yaml:1:21: listen.resp_full: want a single value, not a list or a mapping; within [...] text with a colon needs quotes`,
		},
		{
			name: "syntax", file: "cpu:\n  capacity: a: b\n",
			want: `f.yaml:2:13: not valid YAML: mapping value is not allowed in this context`,
		},
		{
			name: "a pattern without quotes, in a block", file: "access:\n- uids: [1]\n  match: *\n  rights: [read]\n",
			want: `f.yaml:3:10: not valid YAML: mapping value is not allowed in this context; a * alone needs quotes`,
		},
		{
			name: "a pattern without quotes, in braces", file: "access: [{uids: [1], match: *, rights: [read]}]\n",
			want: `f.yaml:1:30: not valid YAML: unexpected scalar value type; a * alone needs quotes`,
		},
		{
			name: "a pattern without quotes that goes on", file: "spaces: [{match: *-chat, quota: 1GiB}]\n",
			want: `f.yaml:1:18: spaces[0].match: anchors, aliases, tags and directives are not supported; write the value itself, in quotes where it begins with * or &`,
		},
		{
			name: "a list for a file", file: "- cpu\n",
			want: `f.yaml:1:1: want a mapping of listen, admin, chunk, cpu, disk, remote, write, prefetch, lease, retain, limits, stop, events, spaces, access, log`,
		},
		{
			name: "duplicate keys", file: "lease: {max_age: 1m, max_age: 2m}\nlease: {}\n",
			want: `
f.yaml:1:22: lease.max_age: is here twice; remove one
f.yaml:2:1: lease: is here twice; remove one`,
		},
		{
			name: "two documents", file: "stop: {}\n---\nstop: {}\n",
			want: `f.yaml:2:1: a second YAML document; keep everything in one`,
		},
		{
			name: "aliases", file: "cpu: {policy: &p lfu}\ndisk: {policy: *p}\n",
			want: `
f.yaml:1:15: cpu.policy: anchors, aliases, tags and directives are not supported; write the value itself, in quotes where it begins with * or &
f.yaml:2:16: disk.policy: anchors, aliases, tags and directives are not supported; write the value itself, in quotes where it begins with * or &`,
		},
		{
			name: "wrong types",
			file: "listen: {group: 12, allow_uids: 0}\nadmin: [a]\nchunk: {tokens: many, save_unfull: \"true\"}\ndisk: {paths: [{a: b}]}\nwrite: {unsafe_age: [1]}\nlog: {level:}\n",
			want: `
f.yaml:1:17: listen.group: want a string; put quotes around 12
f.yaml:1:33: listen.allow_uids: want a list, such as [1000]
f.yaml:2:8: admin: want a mapping of listen, hosts, dashboard, socket, mode, group
f.yaml:3:17: chunk.tokens: want a whole number, not the string "many"
f.yaml:3:36: chunk.save_unfull: want true or false, not the string "true"
f.yaml:4:16: disk.paths[0]: want a single value, not a list or a mapping; within [...] text with a colon needs quotes
f.yaml:5:21: write.unsafe_age: want a single value, not a list or a mapping; within [...] text with a colon needs quotes
f.yaml:6:13: log.level: has no value; give it one or remove the line`,
		},
		{
			name: "wrong numbers",
			file: "listen: {mode: 0999, allow_uids: [0, -1, 4294967296]}\nchunk: {tokens: 1.5}\ncpu: {capacity: .nan}\nlimits: {connections: 1e999}\n",
			want: `
f.yaml:1:16: listen.mode: "0999" is not a file mode; write it in octal, such as "0660"
f.yaml:1:38: listen.allow_uids[1]: want a whole number from 0 to 4294967295, not "-1"
f.yaml:1:42: listen.allow_uids[2]: want a whole number from 0 to 4294967295, not "4294967296"
f.yaml:2:17: chunk.tokens: want a whole number, not "1.5"
f.yaml:3:17: cpu.capacity: ".nan" is not a size; write a whole number with a unit, such as 512MiB, 4GiB or 64KB
f.yaml:4:23: limits.connections: want a whole number, not the string "1e999"`,
		},
		{
			name: "values",
			file: "chunk: {tokens: 0, hash: md5}\nwrite: {mode: never, unsafe_age: 20ms}\nprefetch: {policy: maybe, deadline: -1s, per_1024_tokens: -1ms}\nlog: {format: xml}\n",
			want: `
f.yaml:1:17: chunk.tokens: want 1 to 65536, not 0
f.yaml:1:26: chunk.hash: want sha256 or xxh64, not "md5"
f.yaml:2:15: write.mode: want auto or through, not "never"
f.yaml:2:34: write.unsafe_age: want 0, or at least 1s, not 20ms
f.yaml:3:20: prefetch.policy: want best_effort, wait_complete or timeout, not "maybe"
f.yaml:3:37: prefetch.deadline: want above 0s, not -1s
f.yaml:3:59: prefetch.per_1024_tokens: want 0s or more, not -1ms
f.yaml:4:15: log.format: want auto, console or json, not "xml"`,
		},
		{
			name: "DRAM tier",
			file: "cpu:\n  capacity: 9GiB\n  policy: best\n  hugepages: maybe\n",
			want: `
f.yaml:2:13: cpu.capacity: 9GiB is more than there is: memory.max allows 8.0 GiB; lower it (the process itself needs some too)
f.yaml:3:11: cpu.policy: want lru, lfu, fifo, mru, arc, s3fifo or tenure, not "best"
f.yaml:4:14: cpu.hugepages: want auto, on or off, not "maybe"`,
		},
		{
			name: "too small", file: "cpu: {capacity: 15MiB}\n",
			want: `f.yaml:1:17: cpu.capacity: want at least 16MiB, not 15MiB`,
		},
		{
			name: "disk tier",
			file: "disk:\n  paths: []\n  meta: ./here\n  capacity: 1MiB\n",
			want: `
f.yaml:2:10: disk.paths: is empty; give a folder, or set disk.capacity to 0 for no disk tier
f.yaml:3:9: disk.meta: want an absolute path, not "./here"
f.yaml:4:13: disk.capacity: want 0, or at least 64MiB, not 1MiB`,
		},
		{name: "no disk tier", file: "disk: {capacity: 0}\n"},
		{name: "no disk tier, no paths", file: "disk: {capacity: 0, paths: []}\n"},
		{
			name: "sockets",
			file: "listen:\n  socket: /" + strings.Repeat("a", 106) + "\n  mode: \"0440\"\n  group: a:b\nadmin: {listen: \":9464\"}\n",
			want: `
f.yaml:2:11: listen.socket: 107 bytes are too long for a socket; use a path of at most 106
f.yaml:3:9: listen.mode: 0440 lets nobody connect, which takes write permission; use 0660 or 0600
f.yaml:4:10: listen.group: "a:b" is not a group; write its name or number
f.yaml:5:17: admin.listen: names no host; write 127.0.0.1:9464 for this machine only, or 0.0.0.0:9464 for everybody who can reach it`,
		},
		{name: "longest sockets", file: "listen: {socket: /" + strings.Repeat("a", 105) + "}\nadmin: {socket: /" + strings.Repeat("b", 105) + "}\n"},
		{name: "longest socket with admin.socket beside it", file: "listen: {socket: /" + strings.Repeat("a", 99) + "}\n"},
		{
			name: "no room for admin.socket", file: "listen: {socket: /" + strings.Repeat("a", 100) + "}\n",
			want: "f.yaml: admin.socket: listen.socket with .admin behind it has 107 bytes, which are too long for a socket; write a path of at most 106 here",
		},
		{
			name: "admin socket", file: "admin:\n  socket: ./s\n  mode: \"0444\"\n  group: a/b\n",
			want: `
f.yaml:2:11: admin.socket: want an absolute path, not "./s"
f.yaml:3:9: admin.mode: 0444 lets nobody connect, which takes write permission; use 0660 or 0600
f.yaml:4:10: admin.group: "a/b" is not a group; write its name or number`,
		},
		{
			name: "admin socket is listen.socket", file: "admin: {socket: /run/kvstored/../kvstored/kvstored.sock}\n",
			want: "f.yaml:1:17: admin.socket: /run/kvstored/kvstored.sock is listened on already; use a path of its own",
		},
		{
			name: "front ends on admin.socket", file: "admin: {socket: /a}\nlisten:\n  resp: [/a]\n",
			want: "f.yaml:3:10: listen.resp[0]: /a is listened on already; use an address of its own",
		},
		{
			name: "admin socket of a wrong type", file: "admin: {socket: [], mode: 0600, group: 12}\n",
			want: `
f.yaml:1:17: admin.socket: want a single value, not a list or a mapping; within [...] text with a colon needs quotes
f.yaml:1:40: admin.group: want a string; put quotes around 12`,
		},
		{
			name: "admin hosts",
			file: "admin:\n  hosts: [node1, Node2.example, http://a, \"b:9464\", \"*.c\", 10.0.0.1, \"\", NODE1, d.]\n",
			want: `
f.yaml:2:33: admin.hosts[2]: "http://a" is not a host name; write it without scheme, port or pattern, such as node1.example
f.yaml:2:43: admin.hosts[3]: "b:9464" is not a host name; write it without scheme, port or pattern, such as node1.example
f.yaml:2:53: admin.hosts[4]: "*.c" is not a host name; write it without scheme, port or pattern, such as node1.example
f.yaml:2:60: admin.hosts[5]: 10.0.0.1 is an address; these are accepted without being named, so remove it
f.yaml:2:70: admin.hosts[6]: "" is not a host name; write it without scheme, port or pattern, such as node1.example
f.yaml:2:74: admin.hosts[7]: NODE1 is in the list already; give each name once
f.yaml:2:81: admin.hosts[8]: "d." is not a host name; write it without scheme, port or pattern, such as node1.example`,
		},
		{name: "admin off", file: "admin: {listen: \"\"}\n"},
		{name: "admin on IPv6", file: "admin: {listen: \"[::1]:0\"}\n"},
		{
			name: "relative socket, port that is none", file: "listen: {socket: \"@kvstored\"}\nadmin: {listen: \"localhost:http\"}\n",
			want: `
f.yaml:1:18: listen.socket: want an absolute path, not "@kvstored"
f.yaml:2:17: admin.listen: port "http" is not a number from 0 to 65535`,
		},
		{
			name: "no port", file: "admin: {listen: localhost}\n",
			want: `f.yaml:1:17: admin.listen: "localhost" is not an address; write host:port such as 127.0.0.1:9464, or "" to turn it off`,
		},
		{
			name: "what a token costs",
			file: "spaces:\n- {match: a, prefill_depth: 0}\n- {match: b, prefill_depth: -30000}\n" +
				"- {match: c, prefill_depth: 30k}\n- {match: d, prefill_depth: 1.5}\n- {match: e, prefill_depth: 2000000000}\n- {match: f}\n",
			want: `f.yaml:3:29: spaces[1].prefill_depth: want 0 to 1000000000, not -30000
f.yaml:4:29: spaces[2].prefill_depth: want a whole number, not the string "30k"
f.yaml:5:29: spaces[3].prefill_depth: want a whole number, not "1.5"
f.yaml:6:29: spaces[4].prefill_depth: want 0 to 1000000000, not 2000000000`,
		},
		{
			name: "spaces",
			file: "spaces:\n- {match: \"\", quota: 1GiB}\n- {match: a, quota: 1MiB}\n- {match: b, quota: 1GiB}\n- {match: b, quota: 1GiB, priority: 4}\n",
			want: `f.yaml:2:11: spaces[0].match: is empty and matches no model; write a name, or a pattern such as "llama-*"
f.yaml:3:21: spaces[1].quota: want 0, or at least 64MiB, not 1MiB
f.yaml:5:11: spaces[3].match: "b" is in an earlier rule, which counts; remove one
f.yaml:5:27: spaces[3].priority: is no key any more: nothing is spared by its model any more; a quota bounds the others, and clients retain what is to stay (hints); take it out`,
		},
		{
			name: "ages of chunks",
			file: "spaces:\n- {match: a, max_age: 1d}\n- {match: b, max_age: 90}\n- {match: c, max_age: -1h}\n- {match: d, max_age: 500ms}\n- {match: e, max_age: 100000h}\n- {match: f, max_age: 1h}\n",
			want: `f.yaml:2:23: spaces[0].max_age: "1d" is not a duration; write a number with a unit, such as 25us, 10s or 5m
f.yaml:3:23: spaces[1].max_age: "90" is not a duration; write a number with a unit, such as 25us, 10s or 5m
f.yaml:4:23: spaces[2].max_age: want 0s to 87600h, not -1h
f.yaml:5:23: spaces[3].max_age: want whole seconds, not 500ms
f.yaml:6:23: spaces[4].max_age: want 0s to 87600h, not 100000h`,
		},
		{
			name: "front ends",
			file: "listen:\n  resp: [\"0.0.0.0:6379\", run/resp.sock, \"127.0.0.1:6380\", /run/resp.sock]\n",
			want: `
f.yaml:2:10: listen.resp[0]: 0.0.0.0:6379 is open to other machines; set listen.resp_password_file, or use 127.0.0.1
f.yaml:2:26: listen.resp[1]: "run/resp.sock" is no address; write the absolute path of a socket, or host:port such as 127.0.0.1:6380`,
		},
		{
			name: "what other machines reach",
			file: "listen:\n  resp: [\"localhost:1\", \"127.1.2.3:1\", \"[::1]:1\", \"10.0.0.5:1\", \"[fe80::1]:1\", \"[::]:1\", \"kv.example.org:1\"]\n",
			want: `
f.yaml:2:51: listen.resp[3]: 10.0.0.5:1 is open to other machines; set listen.resp_password_file, or use 127.0.0.1
f.yaml:2:65: listen.resp[4]: [fe80::1]:1 is open to other machines; set listen.resp_password_file, or use 127.0.0.1
f.yaml:2:80: listen.resp[5]: [::]:1 is open to other machines; set listen.resp_password_file, or use 127.0.0.1
f.yaml:2:90: listen.resp[6]: kv.example.org:1 is open to other machines; set listen.resp_password_file, or use 127.0.0.1`,
		},
		{
			name: "a folder twice, a password",
			file: "disk: {paths: [/a, /b, /a/]}\nremote: {s3: {bucket: kvcache, endpoint: \"https://user:secret@host\", ttl: 0s}}\n",
			want: `
f.yaml:1:24: disk.paths[2]: /a is in the list already; give each folder once
f.yaml:2:42: remote.s3.endpoint: contains credentials; give them through the environment or remote.s3.profile`,
		},
		{
			name: "a bucket whose name is too short",
			file: "remote: {s3: {bucket: kv}}\n",
			want: `
f.yaml:1:23: remote.s3.bucket: "kv" has 2 characters; S3 wants 3 to 63 in the name of a bucket`,
		},
		{
			name: "a bucket whose name S3 refuses",
			file: "remote: {s3: {bucket: KV_Cache}}\n",
			want: `
f.yaml:1:23: remote.s3.bucket: S3 refuses "KV_Cache"; the name of a bucket has lower-case letters, digits, hyphens and single dots, and begins and ends with a letter or digit`,
		},
		{
			name: "a prefix with a way out",
			file: "remote: {s3: {bucket: chunks, prefix: ../x}}\n",
			want: `
f.yaml:1:39: remote.s3.prefix: "../x" has a part that is empty or only dots, which stores read in several ways; write names between single slashes`,
		},
		{
			name: "a prefix with an empty part",
			file: "remote: {s3: {bucket: chunks, prefix: a//b/}}\n",
			want: `
f.yaml:1:39: remote.s3.prefix: "a//b/" has a part that is empty or only dots, which stores read in several ways; write names between single slashes`,
		},
		{
			name: "a bucket named like an address",
			file: "remote: {s3: {bucket: 192.168.1.1}}\n",
			want: `
f.yaml:1:23: remote.s3.bucket: S3 refuses "192.168.1.1"; the name of a bucket is no IP address, and does not begin with xn--`,
		},
		{
			name: "a bucket whose name is too long",
			env:  []string{"KVSTORED_REMOTE__S3__BUCKET=" + strings.Repeat("k", 64)},
			want: `
KVSTORED_REMOTE__S3__BUCKET: remote.s3.bucket: "` + strings.Repeat("k", 64) + `" has 64 characters; S3 wants 3 to 63 in the name of a bucket`,
		},
		{
			name: "environment",
			env: []string{
				"KVSTORED_SOCKET=/x", "KVSTORED_CONFIG=/y", // the client commands'
				"KVSTORED_CPU__CAPCITY=1GiB", "KVSTORED_cpu__capacity=1GiB", "KVSTORED_PORT=9464",
				"KVSTORED_CPU={}", "KVSTORED_LISTEN__ALLOW_UIDS=1000", "KVSTORED_DISK__PATHS=", "KVSTORED_CPU__CAPACITY__X=1",
			},
			want: `
KVSTORED_CPU: cpu: is a section; set its keys one by one, such as KVSTORED_CPU__CAPACITY
KVSTORED_CPU__CAPACITY__X: no such setting; unset it, or name a key by its path in capitals with __ between levels, such as KVSTORED_CPU__CAPACITY
KVSTORED_CPU__CAPCITY: no such setting; unset it, or name a key by its path in capitals with __ between levels, such as KVSTORED_CPU__CAPACITY
KVSTORED_DISK__PATHS: disk.paths: want a list, such as [a, b]; [] is the empty one
KVSTORED_LISTEN__ALLOW_UIDS: listen.allow_uids: want a list, such as [1000]
KVSTORED_PORT: no such setting; unset it, or name a key by its path in capitals with __ between levels, such as KVSTORED_CPU__CAPACITY
KVSTORED_cpu__capacity: no such setting; unset it, or name a key by its path in capitals with __ between levels, such as KVSTORED_CPU__CAPACITY`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := loadText(t, tt.file, tt.env...)
			if got, want := errorText(err), strings.TrimPrefix(tt.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestEnvironmentOverridesFile(t *testing.T) {
	c, err := loadText(t, "cpu: {capacity: 1GiB, policy: lfu}\nlisten: {allow_uids: [7]}\n",
		"KVSTORED_CPU__CAPACITY=2GiB", "KVSTORED_LISTEN__ALLOW_UIDS=[1000, 1001]",
		"KVSTORED_LISTEN__MODE=0600", "KVSTORED_LISTEN__GROUP=12", "KVSTORED_ADMIN__LISTEN=",
		"KVSTORED_PREFETCH__PER_1024_TOKENS=3ms", "KVSTORED_CHUNK__SAVE_UNFULL=true")
	if err != nil {
		t.Fatal(err)
	}
	if c.CPU.Capacity != 2*gib || c.CPU.Policy != "lfu" {
		t.Errorf("cpu = %+v, want 2GiB from the environment and lfu from the file", c.CPU)
	}
	if l := c.Listen; len(l.AllowUIDs) != 2 || l.AllowUIDs[1] != 1001 || l.Mode != 0o600 || l.Group != "12" {
		t.Errorf("listen = %+v", l)
	}
	if c.Admin.Listen != "" || c.Prefetch.Per1024Tokens != 3e6 || !c.Chunk.SaveUnfull {
		t.Errorf("admin %q, per_1024_tokens %v, save_unfull %v", c.Admin.Listen, c.Prefetch.Per1024Tokens, c.Chunk.SaveUnfull)
	}
}

func TestLoadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kvstored.yaml")
	if _, err := Load(path, nil, testRules); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing file: %v", err)
	}
	if err := os.WriteFile(path, []byte("cpu: {capacity: 1}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var all Errors
	var one *Error
	_, err := Load(path, nil, testRules)
	if !errors.As(err, &all) || !errors.As(err, &one) || one.Source != path || one.Line != 1 || one.Path != "cpu.capacity" {
		t.Errorf("bad file: %#v", err)
	}
	if err := os.WriteFile(path, make([]byte, maxFileBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, nil, testRules); err == nil || !strings.Contains(err.Error(), "larger than 64KiB") {
		t.Errorf("huge file: %v", err)
	}
}

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	if errs := check(&c, testRules, func(string) bool { return true }); len(errs) > 0 {
		t.Error(errs)
	}
	_, err := Load("", nil, Rules{MemoryBytes: 1 << 30})
	if got := errorText(err); got != "cpu.capacity: 4GiB is more than there is: this machine's memory allows 1.0 GiB; lower it (the process itself needs some too)" {
		t.Error(got)
	}
}

func TestDefaultForUser(t *testing.T) {
	tests := []struct {
		uid          int
		env          []string
		socket, disk string
	}{
		{0, []string{"XDG_RUNTIME_DIR=/run/user/0"}, "/run/kvstored/kvstored.sock", "/var/lib/kvstored"},
		{7, []string{"XDG_RUNTIME_DIR=/run/user/7", "XDG_CACHE_HOME=/c", "HOME=/h"}, "/run/user/7/kvstored.sock", "/c/kvstored"},
		{7, []string{"XDG_RUNTIME_DIR=", "TMPDIR=/t", "HOME=/h"}, "/t/kvstored-7.sock", "/h/.cache/kvstored"},
		{7, nil, "/tmp/kvstored-7.sock", "/tmp/kvstored-7"},
	}
	for _, tt := range tests {
		c, err := Load("", tt.env, Rules{UID: tt.uid})
		if err != nil || c.Listen.Socket != tt.socket || c.Disk.Paths[0] != tt.disk {
			t.Errorf("uid %d, %q: socket %s, disk %s, error %v; want %s, %s", tt.uid, tt.env, c.Listen.Socket, c.Disk.Paths[0], err, tt.socket, tt.disk)
		}
	}
}

// TestPassedOver: variables of Kubernetes' services and of our demos and tests end no start,
// and are told; a misspelt setting is an error all the same.
func TestPassedOver(t *testing.T) {
	none := []string{
		"KVSTORED_LLAMA=/x", "KVSTORED_BIN=/x", "KVSTORED_WHEEL=client", "KVSTORED_HISTORIES=1", "KVSTORED_SEED=1", "KVSTORED_CONVERSATIONS=2",
		"KVSTORED_SERVICE_HOST=10.0.0.1", "KVSTORED_SERVICE_PORT=6380", "KVSTORED_SERVICE_PORT_RESP=6380", "KVSTORED_PORT=tcp://10.0.0.1:6380",
		"KVSTORED_PORT_6380_TCP=tcp://10.0.0.1:6380", "KVSTORED_PORT_6380_TCP_PROTO=tcp", "KVSTORED_PORT_6380_TCP_PORT=6380", "KVSTORED_PORT_6380_TCP_ADDR=10.0.0.1",
		"KVSTORED_ROUTER_SERVICE_HOST=10.0.0.1", "KVSTORED_ROUTER_PORT=tcp://10.0.0.1:9465", "KVSTORED_ROUTER_PORT_53_UDP=udp://10.0.0.1:53",
	}
	var names []string
	for _, kv := range none {
		name, _, _ := strings.Cut(kv, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	if got := PassedOver(append(none, "PATH=/x", "KVSTORED_SOCKET=/x", "KVSTORED_CPU__CAPACITY=1GiB")); !slices.Equal(got, names) {
		t.Errorf("passed over: %q", got)
	}
	if _, err := Load("", append(none, "KVSTORED_CPU__CAPACITY=1GiB"), Rules{}); err != nil {
		t.Errorf("with variables that are no settings: %v", err)
	}
	for _, kv := range []string{
		"KVSTORED_CPU__CAPACTIY=1GiB", "KVSTORED_ADMIN_LISTEN=x", "KVSTORED_ADMIN_PORT=9464", "KVSTORED_SERVICE=x", "KVSTORED_LLAMAS=x", "KVSTORED_PORT_6380=x",
		"KVSTORED_PORT_6380_TCP_HOST=x", "KVSTORED_SERVICE_HOSTS=x", "kvstored_service_host=x", "KVSTORED_LISTEN__PORT=tcp",
	} {
		if _, err := Load("", []string{kv}, Rules{}); (err == nil) != !strings.HasPrefix(kv, "KVSTORED_") {
			t.Errorf("%s: %v", kv, err)
		}
	}
}

// TestTooEmpty: the lexer takes a minute for a file of empty lines, which is refused before.
func TestTooEmpty(t *testing.T) {
	const text = "more than 100 empty lines follow each other"
	for _, tt := range []struct {
		name, file string
		line       int // that is named; 0 = it is not refused for them
	}{
		{"in a folded text", "listen:\n  socket: >\n    a" + strings.Repeat("\n", 60_000) + "    b\n", 104},
		{"behind one", "listen:\n  socket: >\n    a" + strings.Repeat("\n", 60_000), 104},
		{"carriage returns", "a: >\n b" + strings.Repeat("\r", 60_000), 103},
		{"both", "a: >\r\n b" + strings.Repeat("\r\n", 30_000), 103},
		{"with spaces", "a: >\n b" + strings.Repeat(" \t\n", 20_000), 103},
		{"100", "log: {level: info}" + strings.Repeat("\n", 101) + "log: {}\n", 0},
		{"comments", "log: {level: info}" + strings.Repeat("\n#", 20_000) + "\n", 0},
	} {
		_, err := loadText(t, tt.file)
		if says := errorText(err); strings.Contains(says, text) != (tt.line > 0) || tt.line > 0 && !strings.Contains(says, fmt.Sprintf(":%d:1: ", tt.line)) {
			t.Errorf("%s: %.200s", tt.name, says)
		}
	}
}

// TestPipes: a file that is a pipe would be waited for.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	_, whole := Load(path, nil, Rules{})
	_, secret := ReadSecret("route.token_file", path)
	_, folder := ReadSecret("route.token_file", filepath.Dir(path))
	_, device := Load(os.DevNull, nil, Rules{})
	for what, err := range map[string]error{"configuration": whole, "secret": secret, "a folder": folder, "a device": device} {
		if !strings.Contains(errorText(err), "is no regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTooDeep: what nests deeper than any key is refused before it is parsed, which would
// take hundreds of MiB, in the file, at a reload and in a variable.
func TestTooDeep(t *testing.T) {
	const text = "lists and mappings lie in each other more than 16 deep"
	steps := func(n int, step string) (s string) {
		for i := range n {
			s += strings.Repeat("  ", i) + step + "\n"
		}
		return s
	}
	for _, tt := range []struct {
		name, file string
		deep       bool
	}{
		{"brackets", strings.Repeat("[", 20_000), true},
		{"braces", strings.Repeat("{a: ", 15_000), true},
		{"brackets that others end", strings.Repeat("[}", 20_000), true},
		{"brackets that a comment ends", strings.Repeat("[ # ]\n", 8_000), true},
		{"brackets that a text ends", strings.Repeat("['] ', ", 8_000), true},
		{"brackets behind an apostrophe", "a: it's\nb: " + strings.Repeat("[", 20_000), true},
		{"entries", strings.Repeat("- ", 20_000), true},
		{"keys", strings.Repeat("? ", 20_000), true},
		{"sections", steps(17, "a:"), true},
		{"entries, line by line", steps(17, "-"), true},
		{"brackets in sections", steps(8, "a:") + strings.Repeat("  ", 8) + strings.Repeat("[", 9), true},
		{"16 brackets", strings.Repeat("[", 16) + strings.Repeat("]", 16), false},
		{"16 sections", steps(16, "a:"), false},
		{"lists beside each other", strings.Repeat("- - [a, {b: [c]}]\n", 2_000), false},
		{"brackets in a text", "a: \"" + strings.Repeat("[", 100) + "\"\nb: x" + strings.Repeat("[", 100) + "\n# " + strings.Repeat("[", 100), false},
	} {
		if _, err := loadText(t, tt.file); strings.Contains(errorText(err), text) != tt.deep {
			t.Errorf("%s: %.200s", tt.name, errorText(err))
		}
	}
	_, err := loadText(t, "", "KVSTORED_DISK__PATHS="+strings.Repeat("[", 20_000))
	if want := "KVSTORED_DISK__PATHS: disk.paths: " + text; errorText(err) != want {
		t.Errorf("a variable: %.200s", errorText(err))
	}
	path := filepath.Join(t.TempDir(), "f.yaml")
	if err := os.WriteFile(path, []byte("disk: "+strings.Repeat("[", 20_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	running := Default()
	if _, err := Reload(&running, path, nil, testRules); err == nil || !strings.Contains(err.Error(), "f.yaml:1:22: "+text) {
		t.Errorf("a reload: %.200v", err)
	}
}

// TestByteOrderMark: a mark before the text of a file says nothing.
func TestByteOrderMark(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("\ufeff"+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cpu: {capacity: 1GiB}\r\nfoo: 1\r\n")
	if _, err := Load(path, nil, Rules{}); err == nil || !strings.Contains(err.Error(), "f.yaml:2:1: foo: unknown key") || strings.Contains(err.Error(), "f.yaml:1") {
		t.Errorf("a wrong key on line 2: %v", err)
	}
	write("cpu: {capacity: 1GiB}\r\n")
	c, err := Load(path, nil, Rules{})
	if err != nil || c.CPU.Capacity != 1<<30 {
		t.Errorf("%v, %v", c.CPU.Capacity, err)
	}
	if r, err := Reload(&c, path, nil, Rules{}); err != nil || len(r.Changes) != 0 {
		t.Errorf("a reload: %v, %v", r, err)
	}
	write("secret\r\nmore")
	if s, err := ReadSecret("some.key", path); s != "secret" || err != nil {
		t.Errorf("a secret: %q, %v", s, err)
	}
	write("\n")
	if _, err := ReadSecret("some.key", path); err == nil || !strings.HasPrefix(err.Error(), "some.key: the first line of ") {
		t.Errorf("no secret: %v", err)
	}
}
