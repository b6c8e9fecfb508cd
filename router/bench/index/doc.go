// Command router measures the routing index (router/index) beside plain
// ways to know who holds which prefix, in one run, on the conversation trace
// published with Mooncake:
//
//	go run ./router/bench/index -trace FILE                            # prompts of some 24 blocks
//	go run ./router/bench/index -trace FILE -copies 1 -split 32 -limit 3000   # each block split in 32
//
// The trace's requests are dealt in turns to 64 workers, each with room for
// 16,384 blocks that are let go of by last use; -copies plays it so many times
// with blocks of its own each time. What the workers store and remove are the
// events. The rivals are
//
//   - trie: a trie of maps under one RWMutex. A node has a map of its children
//     and a set of its workers, and a map leads from hashes to nodes. It is asked for
//     the workers that are still in the running, which are kept in a slice.
//   - counting: the same trie, where all workers of each node are gone through.
//   - flat: 64 maps, each under an RWMutex, from a hash to the workers that have
//     it. Each block of a prompt is looked up until no worker is left.
//
// Measured are processor time of the thread for events and queries, alone and
// beside each other; heap after a collection; and the collector's own time with
// this index and little else alive. All must give equal answers. Without
// the trace the command says so and ends.
package main
