// Package logqueue writes the log of a program, so that no call to it blocks.
//
// A line is copied into a queue of bounded size, which one goroutine writes. Where
// nothing takes the lines (a pipe that is not read, a full disk, a reader that has gone)
// they are lost and counted, and how many were is the next line once there is a way again.
// Errors have a reserve in the queue that lower levels cannot take. What a program says
// last is written before it ends, in a second at most.
//
// Start starts the goroutine, which ends with Queue.Close. The mutex of a Queue is a leaf;
// nothing is written under it. A line belongs to its caller again when Write returns.
package logqueue
