package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// depths that fio is tried with.
var depths = []int{1, 2, 4, 8}

// fio times its own sequential reads and writes of one file.
type fio struct {
	program string // "" where there is none
	file    string
	bytes   int64
}

func newFio(dir string, bytes int64) *fio {
	program, err := exec.LookPath("fio")
	if err != nil {
		return &fio{}
	}
	return &fio{program: program, file: filepath.Join(dir, "fio.bin"), bytes: bytes}
}

// run returns bytes per second.
func (f *fio) run(ctx context.Context, rw string, size, depth int) (float64, error) {
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
