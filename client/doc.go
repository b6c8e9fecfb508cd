// Package client talks to a kvstored daemon on the same machine.
//
//	c, err := client.Dial(ctx, "/run/kvstored/kvstored.sock", client.Options{Space: &space})
//	...
//	job, err := c.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{})
//	state, err := job.Wait(ctx, client.All) // what is ready is usable, also beside an error
//	for i := range int(state.Ready.Chunks) {
//		n, err := job.Copy(ctx, buf[i], i)
//	}
//	if err := job.Release(ctx); err != nil {
//		// forget what was copied: the lease did not hold
//	}
//
//	fill, err := c.Reserve(ctx, job.Prompt(), client.ReserveOptions{First: have, Size: size})
//	for i := range fill.Len() {
//		if fill.Status(i) == client.Granted {
//			copy(fill.Bytes(i), payload(i))
//		}
//	}
//	results, err := fill.Commit(ctx)
//
// Whatever goes wrong, the answer is a shorter prefix: recompute what is not
// there. docs/protocol.md explains jobs, leases and fills.
//
// # What it owns
//
// A [Client] is one connection, and the mappings of the daemon's arena and of
// the connection's staging window. Everything made with it (spaces, jobs,
// fills) ends with it, on both sides. It is never connected again: when the
// daemon is gone every call returns an error that wraps [ErrDisconnected], and
// a new Client starts from nothing.
//
// # What it never does
//
// It starts no goroutine. Of the callers that wait, one reads the socket and
// hands the others their replies; when it has its own, it passes the role on.
// So nothing is read while nobody waits, and [Job.State] is as old as the last
// call that waited for anything.
//
// # Locks
//
// All methods may be called concurrently, except that a [Fill]'s bytes belong
// to whoever fills them. Requests are pipelined: a slow one delays no other.
// The reader and the writer role are channels, so that waiting for them ends
// with a context. The mutexes (of the calls, of a job, of the mappings) guard
// memory only; the one of the mappings is held during Job.Copy, so that Close
// does not pull the arena away under it.
//
// # Buffers
//
// [Job.Chunk] returns memory that belongs to the daemon. It must not be
// written (that faults), and after Release, Cancel, the end of the lease or
// the end of the daemon its bytes may be those of another chunk; after
// [Client.Close] touching it faults. Use [Job.Copy] where that is a worry.
// What callers hand in (tokens, payloads) is not kept beyond the call.
package client
