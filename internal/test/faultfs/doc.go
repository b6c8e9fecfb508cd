// Package faultfs mounts a file system for tests that shows a folder and fails
// where it is told to, as a failing disk does: reads of chosen bytes are EIO,
// also those of a page that is mapped, which is then a SIGBUS. It is a FUSE
// server, a program of package nested.
//
// Where FUSE may not be used (it takes Linux, root and /dev/fuse), or the
// program is not built, tests are skipped, with a message; in CI a program that
// is not built fails them.
//
// Locks: one in FS, held over an order and its answer. The server ends with the
// test.
package faultfs
