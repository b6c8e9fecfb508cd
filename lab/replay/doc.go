// Package replay plays prompts against a live daemon as an inference engine
// would, and checks every byte that comes back.
//
// # Owns
//
// [Requests] reads traces in the format published with Mooncake, and of whole
// sessions of agents; [Chat] makes up the prompts of people who chat. A [Player] plays one prompt: prefetch,
// wait, verify the ready prefix, store the missing chunks, release. [Run] plays a
// whole trace with several clients and adds everything up in a [Result].
//
// Payloads are made from their key ([Fill]) and need not be kept: [Verify]
// knows what every byte must be, in any process and after any restart.
//
// # Never does
//
// It knows the daemon only through package client, and it prints nothing.
//
// # Locks
//
// A Player belongs to one goroutine. Run adds outcomes up under one mutex,
// taken once a request and never during a call of the client.
//
// # Buffers
//
// Hits are verified where they lie, in the daemon's memory, and payloads are
// made where the daemon wants them. Nothing is kept beyond Play.
package replay
