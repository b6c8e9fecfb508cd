//go:build !linux

package blockio

import "os"

const (
	directSupported = false
	direct          = 0
)

func isRefusal(error) bool { return false }

func preallocate(f *os.File, size int64) error { return f.Truncate(size) }

func dropCache(*os.File, int64, int64) {}

func dataSync(f *os.File) error { return f.Sync() }
