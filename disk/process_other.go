//go:build !linux

package disk

// processBytes is not told here.
func processBytes(int) (read, written uint64) { return 0, 0 }
