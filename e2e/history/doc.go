// Package history checks the promises of a daemon against what clients see of it, while
// daemon and clients are killed.
//
//	go -C e2e test ./history
//	go -C e2e test ./history -run TestHistory -history 20m -v
//	go -C e2e test ./history -run TestHistory -ops 1000000 -workers 8 -keeper -v
//
// Workers store, read, delete, pin and flush chunks of a few prompts, far more
// of them than DRAM holds; a conductor flushes, purges, empties DRAM, kills
// client processes, stops the daemon or kills it (kill -9), and starts it again
// with another write mode and other policies. Prompts lose their heads on
// purpose, so that a restart finds chunks without their ancestors. Before clients
// go on after a restart, each prompt is asked for and some are read.
//
// Every payload says under which key, by whom and as which version it was
// written, down to its last byte. So every observation names the write that it
// shows, and history.go can say which of them break a promise: rules lists the
// promises, configurations what a run can be told besides, each by its flag (-aged,
// -keeper, -clock). TestRules has scenes that break each rule, and TestSeededBugs
// bugs that a run must find.
//
// Power failures are not tried here, nor are shared buckets or tiers in trouble. What can
// go wrong only within a millisecond, such as a deletion of a chunk on its way to the disk,
// is met too seldom to be relied on: tests of package tier look there.
//
// It needs nothing but Go.
package history
