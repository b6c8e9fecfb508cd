// Package tier is the contract that every tier fulfils, and the breaker, which
// decorates any of them and times its calls. A Breaker decides when something in
// trouble is left alone, and when it is tried again: a tier, or one direction of a
// path of the disk tier. It makes no call, and knows not what an error means.
//
// It never imports a tier, and knows nothing of the store that is made of
// them, which is package store. What that needs of the tier in DRAM is Hot.
// Beyond Tier itself a tier has roles, each an interface of roles.go.
//
// # Turns
//
// A [Queue] stands before a tier that takes only so many loads at a time:
// clients take turns by bytes, and so do the jobs of one client, so that neither
// many jobs nor a long one keep others waiting. A client that comes back for one
// load after the other pays for its past loads, as one does that has many waiting.
// The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time fair
// queuing, SIGCOMM 1996), once over clients and once over the jobs of each.
//
// # One fetch a key
//
// A [Flights] knows which keys are being fetched, and the waiters of each. The
// first caller of Do for a key is its leader: Flights runs the leader's
// function in a goroutine of its own, so that every caller, the leader too,
// can leave as soon as its own context ends. A call under way goes on for the
// waiters that are left: the function's context carries the leader's values but
// ends only when the last waiter has left. A function that fails passes the turn
// to the next waiter, whose own function then runs, because one caller's trouble
// (its deadline, its share of memory) need not be another's. A key is forgotten when
// its fetch ends. Wait is for the owner's Close.
//
// A function returns a value together with the reference it holds. Flights
// owns that reference until it hands it to one waiter; every other waiter gets
// Clone's, all of them taken before the first is handed out. A value without a
// waiter goes to Discard. So each Do that returns a nil error returns one
// reference for its caller to release, and one that returns an error returns
// none.
//
// # Locks
//
// The mutexes of a Breaker, a Queue and a Flights are leaves: nothing is waited for
// or called under them, and no lock is held over a call of a tier.
// Tiers are the truth about their entries and never call back.
//
// # Buffers
//
// A payload is an arena.Block. Get hands one reference to its caller, Put
// borrows. A Ref is an entry of the hot tier that its owner holds, with one
// reference of its block.
package tier
