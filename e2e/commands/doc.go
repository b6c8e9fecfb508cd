// Package commands tests the commands of kvstored as processes: what depends on a
// disk, a signal, a shell, a terminal, another user or the memory of a process. What
// they print and how they end otherwise is tested in cmd/kvstored.
//
// Some tests take root.
package commands
