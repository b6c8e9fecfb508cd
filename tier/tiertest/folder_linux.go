package tiertest

import "golang.org/x/sys/unix"

// inMemory reports whether a file system has no device.
func inMemory(fs *unix.Statfs_t) bool { return fs.Type == unix.TMPFS_MAGIC }
