// Package metric describes the numbers that a program exports to Prometheus.
//
// # Owns
//
// A [Metric] is one row of a program's table: its name, what it is, and where it is read.
// [Collect] reads all rows of a table from one snapshot.
//
// # Never does
//
// It counts nothing: the part of the program that knows a number has it.
//
// # Locks
//
// None. A table is a variable of a package, and is not changed.
package metric
