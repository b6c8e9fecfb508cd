//go:build !linux

package blockio

import "os"

const directSupported = false

func openDirect(path string, flags int) (*os.File, error) { return os.OpenFile(path, flags, 0o600) }

func isRefusal(error) bool { return false }

func preallocate(f *os.File, size int64) error { return f.Truncate(size) }

func dropCache(*os.File, int64, int64) {}

func dataSync(f *os.File) error { return f.Sync() }
