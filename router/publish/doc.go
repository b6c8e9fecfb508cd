// Package publish sends a log of events to routers in the form in which vLLM
// does: batches in msgpack, over ZeroMQ.
//
//	PUB     topic, number of the batch (u64, big-endian), msgpack
//	ROUTER  asked for a number: (number, msgpack) for each batch from it on, then -1
//	        and asked for "snapshot" besides: all that is there, with the number
//	        from which to go on, then -1
//
// It owns the encoding and nothing else: the log is events.Log, the sockets are
// zmtp's. A gap in the numbers tells a subscriber that it has missed something.
//
// # Locks
//
// None. The encoder belongs to the goroutine that uses it.
package publish
