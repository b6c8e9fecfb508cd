// Package blockio moves payloads between the blocks of an arena and files: the
// queue before one disk, the transfers in it, the files, and whether the disk
// works.
//
// A Transfer is cut into pieces, which a few workers of a Device take in the
// order of submission; neighbours that are written go to the kernel in one
// request. Other work that may hang with the disk is a transfer too (Call), so
// that no caller hangs with it. A File goes past the page cache where its file
// system lets it.
//
// It does not know what the bytes mean, where they may lie, or who waits; it
// never retries a transfer, and never gives one up by itself: Cancel does.
//
// Device.mu is a leaf; no I/O happens under them. A Device holds
// one reference to a transfer's block from Submit until the kernel has let go of
// its memory, and calls Finish after that, without a lock held.
package blockio
