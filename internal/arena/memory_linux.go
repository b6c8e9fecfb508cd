package arena

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// MemoryLimit is how much memory this process may use in bytes, and what says
// so: the smallest limit of its control groups (version 1 or 2) or the
// machine's memory.
func MemoryLimit() (limit int64, source string, err error) { return readMemoryLimit(os.DirFS("/")) }

// readMemoryLimit is MemoryLimit over the file system of a machine.
func readMemoryLimit(root fs.FS) (int64, string, error) {
	return leastMemory(root, "MemTotal", func(_ *memoryGroup, _ string, limit int64) int64 { return limit })
}

// memoryLeft is how much memory this process may take yet in bytes, and what says so. Pages of files
// that can be dropped count as left.
func memoryLeft() (left int64, source string, err error) { return readMemoryLeft(os.DirFS("/")) }

func readMemoryLeft(root fs.FS) (int64, string, error) {
	return leastMemory(root, "MemAvailable", func(g *memoryGroup, dir string, limit int64) int64 {
		used, ok := readLimit(root, path.Join(dir, g.usage))
		if !ok {
			return limit
		}
		return limit - used + filePages(root, path.Join(dir, "memory.stat"), g.inStat)
	})
}

// leastMemory is the smallest of a value of /proc/meminfo and those that a function has of each
// folder of a control group with a limit.
func leastMemory(root fs.FS, name string, of func(g *memoryGroup, dir string, limit int64) int64) (int64, string, error) {
	least, err := memInfo(root, name)
	if err != nil {
		return 0, "", err
	}
	source := name + " in /proc/meminfo"
	for _, g := range memoryGroups(root) {
		// A limit above holds as well, so look all the way up.
		for dir := g.dir; ; dir = path.Dir(dir) {
			file := path.Join(dir, g.file)
			if limit, ok := readLimit(root, file); ok {
				if n := of(&g, dir, limit); n < least {
					least, source = n, "/"+file
				}
			}
			if dir == g.mount || len(dir) < len(g.mount) {
				break
			}
		}
	}
	return least, source, nil
}

// filePages is how many bytes of pages of files a group has, by its statistics.
func filePages(root fs.FS, name, prefix string) (sum int64) {
	text, _ := fs.ReadFile(root, name)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) == 2 && (f[0] == prefix+"active_file" || f[0] == prefix+"inactive_file") {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += n
		}
	}
	return sum
}

func memInfo(root fs.FS, value string) (int64, error) {
	const name = "proc/meminfo"
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if n, _ := fmt.Sscanf(line, value+": %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("/%s has no %s", name, value)
}

// memoryGroup is where one hierarchy keeps the limits of this process.
type memoryGroup struct {
	mount, dir  string // dir is mount or below; both without the leading slash
	file, usage string // of the limit, and of the bytes in use
	inStat      string // before names in memory.stat, for groups below to count
}

// memoryGroups finds the control groups of this process. A machine without any
// has no files to read, which is no error.
func memoryGroups(root fs.FS) []memoryGroup {
	v1, v2 := groupPaths(root)
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	var groups []memoryGroup
	for line := range bytes.Lines(mounts) {
		// proc_pid_mountinfo(5): id parent device root mount options ... - type source superoptions
		left, right, _ := strings.Cut(string(line), " - ")
		l, r := strings.Fields(left), strings.Fields(right)
		if len(l) < 5 || len(r) < 3 {
			continue
		}
		g := memoryGroup{mount: strings.TrimPrefix(l[4], "/")}
		var own string
		switch {
		case r[0] == "cgroup2":
			g.file, g.usage, own = "memory.max", "memory.current", v2
		case r[0] == "cgroup" && slices.Contains(strings.Split(r[2], ","), "memory"):
			g.file, g.usage, g.inStat, own = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_", v1
		default:
			continue
		}
		// In a container the mount's root is often the container's own group.
		g.dir = path.Join(g.mount, strings.TrimPrefix(own, l[3]))
		groups = append(groups, g)
	}
	return groups
}

// groupPaths returns this process's group in the hierarchy of the memory
// controller of version 1, and in that of version 2.
func groupPaths(root fs.FS) (v1, v2 string) {
	text, _ := fs.ReadFile(root, "proc/self/cgroup")
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		f := strings.SplitN(lines.Text(), ":", 3)
		switch {
		case len(f) != 3:
		case f[0] == "0" && f[1] == "":
			v2 = f[2]
		case slices.Contains(strings.Split(f[1], ","), "memory"):
			v1 = f[2]
		}
	}
	return v1, v2
}

// readLimit reads a limit file. One that is absent, or says "max", limits
// nothing.
func readLimit(root fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}

// hugeMapped returns how many bytes of mem are mapped by huge pages.
func hugeMapped(mem []byte) (int64, error) {
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	start := uint64(uintptr(unsafe.Pointer(&mem[0])))
	return parseSmaps(f, start, start+uint64(len(mem)))
}

// parseSmaps sums up the huge pages of the mappings within [start, end).
func parseSmaps(r io.Reader, start, end uint64) (int64, error) {
	var total int64
	inside := false
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var lo, hi uint64
		if n, _ := fmt.Sscanf(lines.Text(), "%x-%x ", &lo, &hi); n == 2 {
			inside = lo >= start && hi <= end
			continue
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		if !inside || (name != "ShmemPmdMapped" && name != "FilePmdMapped") {
			continue
		}
		var kib int64
		if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
			return 0, fmt.Errorf("/proc/self/smaps: %q: %w", lines.Text(), err)
		}
		total += kib << 10
	}
	return total, lines.Err()
}
