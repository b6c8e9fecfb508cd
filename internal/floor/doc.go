// Package floor is what benchmarks measure against: the ways in which this machine
// can copy, and the processor time that a process takes.
//
// It owns nothing, and its functions are safe for concurrent use.
package floor
