// Package route is a service that says which worker a request should go to: a
// routing index (router/index), the events that fill it (router/feed), the
// choice (router/pick), and the calls over HTTP that router/docs/reference.md describes.
//
//	workers' events ---> feed.Publisher, one for each source ---> index.Index
//	caller: select  ---> find in the index, queues of pick.Loads ---> pick.Choose
//	caller: free    ---> pick.Loads
//
// A worker is an engine, and may have a kvstored beside it. The blocks of each are in
// shards of their own, and a query joins the two by worker.
//
// # Owns
//
// The workers that are registered, their sources, the reservations.
//
// # Never does
//
// It forwards no request, knows no tokenizer, and asks no worker anything but its
// events. It connects to no endpoint that Options.Allow does not have. Calls that
// change something come over the Unix socket or bring the token.
//
// # Locks
//
// Service.mu guards workers, speeds and loads; it is held over arithmetic only, and
// comes before those of the index. No lock is held over I/O.
//
// # Buffers
//
// Bodies are read whole, within a budget for all of them together.
package route
