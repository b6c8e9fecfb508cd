// Package human is what people read of every program of kvstored: numbers, tables, lists, the
// progress of long work, the version, the log.
//
// Counts, sizes, shares and times are written as people read them, in messages, tables and
// reports; scripts get their digits elsewhere.
//
// There is one version number in the repository: of the daemon, its commands, and, by a test,
// of the Python client. [GetVersion] also says which commit this program was built from, as far
// as the build has recorded it.
//
// A [LogQueue] writes the log, so that no call to it blocks. A line is copied into a queue of
// bounded size, which one goroutine writes. Where nothing takes the lines (a pipe that is not
// read, a full disk, a reader that has gone) they are lost and counted, and how many were is
// the next line once there is a way again. Errors have a reserve in the queue that lower levels
// cannot take. What a program says last is written before it ends, in a second at most.
//
// StartLog starts the goroutine, which ends with LogQueue.Close. The mutex of a LogQueue is a
// leaf; nothing is written under it. A line belongs to its caller again when Write returns.
package human
