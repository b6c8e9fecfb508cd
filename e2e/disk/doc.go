// Package disk tests a disk tier with the process of its database: file systems that are
// read-only or fail, limits of the process, kills.
//
// It needs Linux. Without root, mkfs.ext4, loop devices or FUSE (and the program of
// internal/test/faultfs, which go run ./internal/test/nested/prepare builds) the tests that take
// them are skipped.
package disk
