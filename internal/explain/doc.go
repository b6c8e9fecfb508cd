// Package explain is what people are told about a store: why part of a prompt was missed and
// what would have helped, which spaces evict which, and which prefixes are stored and hot.
//
// # Owns
//
// The list of reasons, with the stable names that metrics, replies and the documentation
// use, and the tokens missed for each ([Counts]).
//
// [EvictLog]: which chunks have left a store, and why. Its table has 24 bytes for each chunk,
// without pointers, so that the garbage collector does not look into it. An entry says why,
// from which tier and when the chunk left, and how many bytes that tier had evicted by then:
// the bytes evicted since are how much larger the tier would have had to be.
//
// [Rivals]: of each minute of the last hour and each tier the bytes that came, and the chunks
// that no tier has any more, by space; of at most [mostSpaces] spaces, the others as one. What
// went in a minute is shared among those that came in it, by their bytes.
//
// [HotPrefixes]: how often prompts were asked for lately, by where they ended; 56 bytes for each
// end, without pointers. A request is noted once, at the last chunk that it found. How hot a
// shorter prefix is follows: the sum over all ends that stand on it. A score halves every
// [HalfLife]. Both tables are of package base.
//
// [Summary]: all stored prefixes as a tree, made in one go from stretches of chunks as the
// index tells of them, and never changed. A prefix is named by the hash of its first chunk
// behind the last branch. Stretches may be of different moments: one whose ancestors are
// missing stands at the top, one that is its own ancestor is dropped. It has about 150 bytes
// for each of at most [MostRuns] stretches.
//
// # The sample
//
// A [Recorder] keeps a bounded sample of live traffic, of which the lab says what other policies
// and sizes would hit: a tree of hashes, and prompts that are paths in it, as a [Sample] without
// the hashes. Beside it stands what the tiers really hit in the same time.
//
// A session is in the sample as a whole or not at all: its hash decides, which is that of
// the first chunk that the session does not share with a large part of its space. Those
// shared chunks, such as a system prompt, are the heads. They are found for each space,
// whenever the sample is full; prompts of spaces that came since are all taken until then.
// Then either the share of the sessions is halved, or the oldest quarter of the prompts
// goes, if the rest still turns the largest cache over. No request waits for it: what does not
// fit into its queue is dropped and counted, and the share is halved.
//
// # Never does
//
// All of it is advice: no tier keeps or evicts a chunk because of it. A chunk that the EvictLog
// does not know may have left long ago, and one that it knows may be back. The package finds
// nothing out: package store says why a chunk is not there, package server how a request
// ended. It keeps no payload, no token and no key that could be read back.
//
// # Locks
//
// One mutex each for EvictLog, HotPrefixes and Rivals: leaves, held for one bucket or number. Counts
// are atomic. The mutex of a Recorder's queue is held while hashes are copied, that of its book
// while queued prompts are added to the sample, or the sample is copied; never both.
package explain
