//go:build !linux

package filesystem

import "os"

// AllocatedBytes is how much a file occupies on its file system, as far as that says.
func AllocatedBytes(info os.FileInfo) int64 { return info.Size() }
