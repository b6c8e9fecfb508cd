// Package sample keeps a bounded sample of live traffic, of which the lab says what other
// policies and sizes would hit.
//
// # Owns
//
// A [Recorder] keeps what clients have asked for: a tree of hashes, and prompts that are
// paths in it, as a [Sample] without the hashes. Beside it stands what the tiers really hit
// in the same time.
//
// # The sample
//
// A session is in the sample as a whole or not at all: its hash decides, which is that of
// the first chunk that the session does not share with a large part of its space. Those
// shared chunks, such as a system prompt, are the heads. They are found for each space,
// whenever the sample is full; prompts of spaces that came since are all taken until then.
// Then either the share of the sessions is halved, or the oldest quarter of the prompts
// goes, if the rest still turns the largest cache over.
//
// # Never does
//
// It plays nothing, moves no payload, asks no tier, and makes no request wait: what does not
// fit into its queue is dropped and counted, and the share is halved.
//
// # Locks
//
// The mutex of the queue is held while hashes are copied, that of the book while queued
// prompts are added to the sample, or the sample is copied. None is held with the other.
package sample
