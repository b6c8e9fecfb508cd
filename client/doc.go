// Package client talks to a kvstored daemon on the same machine: it loads the
// stored prefix of a prompt, and stores the chunks that were computed.
//
//	c, err := client.Dial(ctx, "/run/kvstored/kvstored.sock", client.Options{Space: &space})
//	...
//	job, err := c.Prefetch(ctx, client.Tokens(tokens), client.PrefetchOptions{})
//	state, err := job.Wait(ctx, client.All) // ready chunks are usable, also beside an error
//	for i := range int(state.Ready.Chunks) {
//		n, err := job.Copy(ctx, buf[i], i)
//	}
//	if err := job.Release(ctx); err != nil {
//		// forget the copies: the lease did not hold
//	}
//
//	fill, err := c.Reserve(ctx, client.Tokens(tokens), client.ReserveOptions{First: int(state.Ready.Chunks), Size: size})
//	for i := range fill.Len() {
//		if fill.Status(i) == client.Granted {
//			fill.Write(i, payload(i))
//		}
//	}
//	results, err := fill.Commit(ctx)
//
// A [Writer] does the latter for one prompt after another in one round trip each.
//
// Any problem with a chunk only shortens the ready prefix: compute the chunks
// behind it. docs/protocol.md explains jobs, leases and fills.
//
// # Owns
//
// A [Client] is one connection, and the mappings of the daemon's arena and of
// the connection's staging window. Everything made with it (spaces, jobs,
// fills) ends with it, on both sides. It is never connected again: when the
// daemon is gone every call returns an error that wraps [ErrDisconnected], and
// a new Client starts from nothing.
//
// # Never does
//
// It starts no goroutine, retries no request and repairs no payload. Of the
// callers that wait, one reads the socket and hands the others their replies;
// when it has its own, it passes the role on. So the socket is read only while
// a call waits, and [Job.State] is as old as the last call that waited for
// anything.
//
// # Locks
//
// All methods may be called concurrently, but a slot of a [Fill] must have one
// writer, which is done before its Commit. Requests are pipelined: a slow one
// delays no other.
// The reader and the writer role are channels, so that waiting for them ends
// with a context. The mutexes (of the calls, of a job, of the mappings) guard
// memory only; the one of the mappings is held during Job.Copy, so that Close does not
// pull the arena away under it.
//
// # Buffers
//
// [Job.Chunk] returns memory that belongs to the daemon. It must not be
// written (that faults), and after Release, Cancel, the end of the lease or
// the end of the daemon its bytes may be those of another chunk; after
// [Client.Close] touching it faults. Use [Job.Copy] where that is a worry.
// [Fill.Bytes] is the daemon's memory too, until Commit or Abort. A [Prompt]
// borrows the slices that it was made from; calls keep none of their arguments
// after they return.
package client
