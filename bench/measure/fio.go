package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// FioDepths are the requests at a time that fio is tried with.
var FioDepths = []int{1, 2, 4, 8}

// Fio times its own sequential reads and writes of one file, by direct I/O.
type Fio struct {
	program string // "" where there is none
	file    string
	bytes   int64
}

// NewFio has a file of so many bytes in dir, which the first write makes.
func NewFio(dir string, bytes int64) *Fio {
	program, err := exec.LookPath("fio")
	if err != nil {
		return &Fio{}
	}
	return &Fio{program: program, file: filepath.Join(dir, fmt.Sprintf("fio-%d.bin", bytes)), bytes: bytes}
}

// Installed reports whether there is one.
func (f *Fio) Installed() bool { return f.program != "" }

// Run returns bytes a second of "read" or "write" in pieces of size, depth at a time.
func (f *Fio) Run(ctx context.Context, rw string, size, depth int) (float64, error) {
	cmd := exec.CommandContext(ctx, f.program, "--name=floor", "--filename="+f.file, "--size="+strconv.FormatInt(f.bytes, 10),
		"--rw="+rw, "--bs="+strconv.Itoa(size), "--iodepth="+strconv.Itoa(depth), "--ioengine=libaio", "--direct=1",
		"--fallocate=posix", "--overwrite=1", "--output-format=json")
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("fio: %w: %s", err, out)
	}
	type side struct {
		Bytes   int64   `json:"io_bytes"`
		Runtime float64 `json:"runtime"` // ms
	}
	var report struct {
		Jobs []struct {
			Read  side `json:"read"`
			Write side `json:"write"`
		} `json:"jobs"`
	}
	if err := json.Unmarshal(out, &report); err != nil || len(report.Jobs) != 1 {
		return 0, fmt.Errorf("fio: its report is not understood: %w", err)
	}
	s := report.Jobs[0].Read
	if rw == "write" {
		s = report.Jobs[0].Write
	}
	if s.Runtime == 0 {
		return 0, fmt.Errorf("fio: %d bytes are too few to be timed", f.bytes)
	}
	return float64(s.Bytes) / s.Runtime * 1000, nil
}
