package disk

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// processBytes is how many bytes a process has caused storage to read and write, as the
// kernel counts: this one the segments and little else, that of the database
// its files, since it was opened last.
func processBytes(pid int) (read, written uint64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		return 0, 0 // not told
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(": "))
		n, _ := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		switch string(name) {
		case "read_bytes":
			read = n
		case "write_bytes":
			written = n
		}
	}
	return read, written
}
