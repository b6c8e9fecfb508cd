// Package fair decides whose load goes next where a tier takes only so many
// at a time, and makes one load of a chunk that many want at the same time.
//
// It owns a Queue per tier: clients take turns by bytes, and so do the jobs of
// one client, so that neither many jobs nor a long one keep others waiting. It
// never knows the chunks that are loaded, and does none of the loading. A client that
// comes back for one load after the other pays for its past loads, as one does that has
// many waiting.
//
// The order is start-time fair queueing (Goyal, Vin, Cheng: Start-time fair
// queuing, SIGCOMM 1996), once over clients and once over the jobs of each.
//
// Locks: a Queue has one mutex; nothing is waited for under it, and nothing called.
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
// (its deadline, its share of memory) need not be another's.
//
// It caches nothing: a key is forgotten when its fetch ends. It never calls
// Fetch, Joined, Clone or Discard with its lock held. Constructors start no
// goroutine; Do starts at most one per key being fetched, and it ends with
// the last function it runs. Wait is for the owner's Close.
//
// One mutex over the map of calls and their waiters, held for a few
// instructions. It is a leaf: nothing else is locked under it.
//
// A function returns a value together with the reference it holds. Flights
// owns that reference until it hands it to one waiter; every other waiter gets
// Clone's, all of them taken before the first is handed out. A value without a
// waiter goes to Discard. So each Do that returns a nil error returns one
// reference for its caller to release, and one that returns an error returns
// none.
package fair
