package arena

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"unsafe"
)

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
