// Package feed brings the events of workers into a routing index (router/index).
//
//	ZeroMQ: a publisher, and its replays --> Subscriber --> Publisher --> index
//
// A [Publisher] is what one endpoint says of one worker. It checks that numbers
// follow each other, decodes, and applies. A publisher forgets blocks that may be gone:
// the index then knows less than is there, and never more.
//
//	number is the next one         applied
//	number is higher               a gap: the source asks for a replay, and where that
//	                               has not all of it, for all there is (resync)
//	number is lower                the publisher has started anew: as a resync
//	bytes that are no batch        all of the worker is forgotten, and for a while,
//	                               longer each time, nothing of it is heard
//	connection lost for a grace    all of the worker is forgotten
//
// A block whose parent is not known waits for it: so many events and blocks for
// each publisher, and so long. A removal reaches those that wait.
//
// # Never does
//
// It knows no HTTP and scores no worker. It opens shards for the models that it
// is given and for no other.
//
// # Locks
//
// Publisher.mu comes before the locks of the index and is not held over I/O.
//
// # Buffers
//
// Payloads are decoded into slices of their own and may be used again when a call
// returns.
package feed
