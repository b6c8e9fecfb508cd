// Package prefetch runs one job per request: it promotes the missing chunks of
// a prompt, first chunk first, and says how much of the prefix is ready.
//
// It owns order, window, deadline and cancellation. It never knows what a
// tier or a lease is: a Source promotes what a job asks for, and what the
// job does not want any more is handed to Discard.
//
// Locks: each job has one mutex for its state; nothing is called under it.
package prefetch
