// Package whatif estimates from live traffic what other policies and other sizes of
// DRAM and disk would hit.
//
// # Owns
//
// A [Recorder] keeps a bounded sample of what clients have asked for: a tree of hashes,
// and prompts that are paths in it. At times it plays that sample through the caches of
// package simulate, one pair of tiers after the other, scaled down as the sample is. The
// result is a [Report].
//
// # The sample
//
// A session is in the sample as a whole or not at all: its hash decides, which is that of
// the first chunk that the session does not share with a large part of all others. Those
// shared chunks, such as a system prompt, are the heads. They are found in the sample,
// whenever it is full. Then either the share of the sessions is halved, or the oldest
// quarter of the prompts goes, if the rest still turns the largest cache over.
//
// # Never does
//
// It moves no payload, asks no tier, and makes no request wait: what does not fit into its
// queue is dropped and counted, and the share is halved.
//
// # Locks
//
// The mutex of the queue is held while hashes are copied; that of the book while queued
// prompts are added to the sample, or the sample is copied for a play; that of the report
// while it is read. None is held with another. A play holds none of them.
package whatif
