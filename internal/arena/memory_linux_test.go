package arena

import (
	"strings"
	"testing"
	"testing/fstest"
)

func TestMemoryLimit(t *testing.T) {
	const (
		meminfo = "MemTotal:       16384 kB\nMemFree:  1 kB\n"
		v2mount = "24 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"
		v1mount = "30 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
		inside  = "24 20 0:22 /pod/box /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
	)
	for name, c := range map[string]struct {
		files  map[string]string
		want   int64
		source string
	}{
		"no groups": {nil, 16 << 20, "MemTotal"},
		"v2 own limit": {map[string]string{
			"proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/pod/box\n",
			"sys/fs/cgroup/pod/box/memory.max": "1048576\n", "sys/fs/cgroup/pod/memory.max": "max\n",
		}, 1 << 20, "/sys/fs/cgroup/pod/box/memory.max"},
		"v2 limit above": {map[string]string{
			"proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/pod/box\n",
			"sys/fs/cgroup/pod/box/memory.max": "max\n", "sys/fs/cgroup/pod/memory.max": "4096\n",
		}, 4096, "/sys/fs/cgroup/pod/memory.max"},
		"v2 in a container": {map[string]string{
			"proc/self/mountinfo": inside, "proc/self/cgroup": "0::/pod/box\n",
			"sys/fs/cgroup/memory.max": "8192\n",
		}, 8192, "/sys/fs/cgroup/memory.max"},
		"v2 in a namespace": {map[string]string{
			"proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "8192\n",
		}, 8192, "/sys/fs/cgroup/memory.max"},
		"v1 beside v2": {map[string]string{
			"proc/self/mountinfo": v1mount + v2mount, "proc/self/cgroup": "4:cpu,memory:/box\n0::/\n",
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "12288\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":     "9223372036854771712\n",
		}, 12288, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes"},
		"above the machine": {map[string]string{
			"proc/self/mountinfo": v2mount, "proc/self/cgroup": "0::/\n",
			"sys/fs/cgroup/memory.max": "9999999999999\n",
		}, 16 << 20, "MemTotal"},
		"garbage": {map[string]string{
			"proc/self/mountinfo": "x\n - \n" + v2mount, "proc/self/cgroup": "x\n0::/../..\n",
			"sys/fs/cgroup/memory.max": "lots\n",
		}, 16 << 20, "MemTotal"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfo)}}
			for f, text := range c.files {
				root[f] = &fstest.MapFile{Data: []byte(text)}
			}
			got, source, err := readMemoryLimit(root)
			if err != nil || got != c.want || !strings.Contains(source, c.source) {
				t.Errorf("got %d from %q (%v), want %d from %q", got, source, err, c.want, c.source)
			}
		})
	}
	if _, _, err := readMemoryLimit(fstest.MapFS{}); err == nil {
		t.Error("no error without /proc/meminfo")
	}
	if n, source, err := MemoryLimit(); err != nil || n <= 0 {
		t.Errorf("this machine: %d from %q, %v", n, source, err)
	}
}

// The limit above the own group counts, less the memory in use there that is no page of a file.
func TestMemoryLeft(t *testing.T) {
	root := fstest.MapFS{}
	for f, text := range map[string]string{
		"proc/meminfo":        "MemTotal:       16384 kB\nMemAvailable:   8192 kB\n",
		"proc/self/mountinfo": "24 20 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n",
		"proc/self/cgroup":    "0::/pod/box\n",
	} {
		root[f] = &fstest.MapFile{Data: []byte(text)}
	}
	for _, step := range []struct {
		file, text string
		want       int64
		source     string
	}{
		{"sys/fs/cgroup/pod/memory.max", "max\n", 8 << 20, "MemAvailable"},
		{"sys/fs/cgroup/pod/memory.max", "6291456\n", 6 << 20, "/sys/fs/cgroup/pod/memory.max"},
		{"sys/fs/cgroup/pod/memory.current", "5242880\n", 1 << 20, "/sys/fs/cgroup/pod/memory.max"},
		{"sys/fs/cgroup/pod/memory.stat", "anon 1\ninactive_file 1048576\nactive_file 4096\nfile 9\n", 2<<20 + 4096, "/sys/fs/cgroup/pod/memory.max"},
		{"sys/fs/cgroup/pod/box/memory.max", "1048576\n", 1 << 20, "/sys/fs/cgroup/pod/box/memory.max"},
		{"sys/fs/cgroup/pod/box/memory.current", "2097152\n", -1 << 20, "/sys/fs/cgroup/pod/box/memory.max"},
	} {
		root[step.file] = &fstest.MapFile{Data: []byte(step.text)}
		got, source, err := readMemoryLeft(root)
		if err != nil || got != step.want || !strings.Contains(source, step.source) {
			t.Errorf("%s: got %d from %q (%v), want %d from %q", step.file, got, source, err, step.want, step.source)
		}
	}
	root = fstest.MapFS{}
	for f, text := range map[string]string{
		"proc/meminfo":        "MemTotal: 16384 kB\nMemAvailable: 8192 kB\n",
		"proc/self/mountinfo": "30 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
		"proc/self/cgroup":    "4:memory:/box\n",
		"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "6291456\n",
		"sys/fs/cgroup/memory/box/memory.usage_in_bytes": "5242880\n",
		"sys/fs/cgroup/memory/box/memory.stat":           "inactive_file 5\ntotal_inactive_file 1048576\n",
	} {
		root[f] = &fstest.MapFile{Data: []byte(text)}
	}
	if got, source, err := readMemoryLeft(root); err != nil || got != 2<<20 {
		t.Errorf("version 1: got %d from %q (%v)", got, source, err)
	}
	if n, source, err := memoryLeft(); err != nil || n <= 0 {
		t.Errorf("this machine: %d from %q, %v", n, source, err)
	}
}

func TestParseSmaps(t *testing.T) {
	const smaps = `7f0000000000-7f0000400000 rw-s 00000000 00:01 5  /memfd:kvstored-arena (deleted)
Rss:                4096 kB
ShmemPmdMapped:     2048 kB
FilePmdMapped:         0 kB
VmFlags: rd wr sh
7f0000400000-7f0000800000 rw-s 00400000 00:01 5  /memfd:kvstored-arena (deleted)
ShmemPmdMapped:     4096 kB
7f0000800000-7f0000c00000 rw-s 00000000 00:01 6  /memfd:other (deleted)
ShmemPmdMapped:     4096 kB
`
	got, err := parseSmaps(strings.NewReader(smaps), 0x7f0000000000, 0x7f0000800000)
	if err != nil || got != 6<<20 {
		t.Errorf("%d huge bytes, %v; want %d", got, err, 6<<20)
	}
}

// What the kernel says of huge pages for shared memory; the chosen word is in brackets.
func TestGivesHuge(t *testing.T) {
	for choices, want := range map[string]bool{
		"always within_size [advise] never deny force\n": true,
		"[always] within_size advise never deny force\n": true,
		"always within_size advise [never] deny force\n": false,
		"always within_size advise never [deny] force\n": false,
		"always": false, "[": false, "": false,
	} {
		if got := givesHuge(choices); got != want {
			t.Errorf("%q: %t", choices, got)
		}
	}
}
