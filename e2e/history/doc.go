// Command consistency checks the promises of a daemon against what clients
// see of it, while daemon and clients are killed.
//
//	go run ./bench/consistency [-ops 1000000] [-for 45s] [-seed N] [-kvstored BINARY]
//
// Workers store, read, delete, pin and flush chunks of a few prompts, far more
// of them than DRAM holds; a conductor flushes, purges, empties DRAM, kills
// client processes, stops the daemon or kills it (kill -9), and starts it again
// with another write mode and other policies. Prompts lose their heads on
// purpose, so that a restart finds chunks without their ancestors.
//
// Every payload says under which key, by whom and as which version it was
// written, down to its last byte. So every observation names the write that it
// shows, and history.go can say which of them break a promise:
//
//   - bytes that were never committed, or under another key;
//   - bytes that were deleted, and the deletion acknowledged, before they were
//     asked for;
//   - what a flush acknowledged and nothing deleted is missing after the end of
//     the process;
//   - two values: an older one is read after a newer one was stored or read;
//   - bytes that changed under a lease that ended well.
//
// It exits with 1 if there was any. Power failures are not tried here, nor are
// shared buckets or tiers in trouble. What can go wrong only within a
// millisecond, such as a deletion of a chunk on its way to the disk, is met too
// seldom to be relied on: tests of package tier look there.
package main
