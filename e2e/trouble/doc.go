// Package trouble tests daemons whose disks, files or memory are in trouble: damage, EIO,
// power failures, file systems that go, limits.
//
// It needs Linux. Without root, FUSE (and the program of internal/test/faultfs, which
// go run ./internal/test/nested/prepare builds), loop devices, mkfs.ext4 or memory control
// groups the tests that take them are skipped.
package trouble
