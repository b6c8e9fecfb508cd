// Command disk measures the disk tier against what fio gets out of the same
// file system with the same sizes: every round takes all measurements once, in
// random order with pauses between, because virtual disks throttle in bursts.
// Printed are medians over the rounds with their spread, and the ratio to the
// best of fio's depths (libaio, O_DIRECT). Without fio there are no ratios.
//
//	go -C bench run ./disk -dir /var/lib/kvstored-bench
//
// Beside it stands what the payloads take as values of a Badger that keeps them
// in its value log (put until synced; get after a reopening that drops what the
// page cache lets go of), and puts into a tier that is full, so that each evicts.
//
// The prefix is 64 chunks of 4 MiB that a prefetch brings from the disk to leased
// memory, as the daemon does; its first chunk stands against one that is alone.
//
// With -rebuild it measures instead how fast the index of a tier is made anew,
// in bytes of its files, against reading these from end to end (direct I/O, a few
// requests of 1 MiB under way): with a database that is lost, so that every
// payload is read and checked, and by hand with one that is whole.
//
//	go -C bench run ./disk -rebuild -dir /var/lib/kvstored-bench
//
// With -inline it compares payloads of 1 to 4 KiB in the database with the same in
// segments: a daemon puts payloads into the database up to where segments are faster.
//
//	go -C bench run ./disk -inline -dir /var/lib/kvstored-bench
//
// A Get includes the checksum of every byte, a Put the record in the database.
package main
