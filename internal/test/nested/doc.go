// Package nested has the programs that tests and benchmarks run but that are no
// part of kvstored: each is built from a module of its own in a folder of this
// one, so that nothing of it enters go.mod, and kept in the user's cache folder.
//
// Tests never build: they [Program.Find] a program, and where it is not built
// they are skipped, in CI they fail. The command internal/test/nested/prepare builds
// all programs.
//
// It holds no lock and no buffer. Two processes may build the same program at
// the same time; each puts its own in place in one step.
package nested
