// Package metric describes the numbers that a program exports to Prometheus.
//
// # Owns
//
// A [Set] has the prefix of a program's names and remembers all that was described with
// it, for the page that documents them. [Out] hands numbers over when they are asked for.
//
// # Never does
//
// It counts nothing: the part of the program that knows a number has it.
//
// # Locks
//
// None. Metrics are described by variables of a package, before anything runs.
package metric
