package filesystem

import (
	"os"
	"syscall"
)

// AllocatedBytes is how much a file occupies on its file system.
func AllocatedBytes(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
