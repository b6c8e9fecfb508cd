// Package policy decides which entry of a bounded store goes next.
//
// # Owns
//
// The orders, heaps and ghosts from which a policy knows the next victim, and
// nothing else: the owner of a policy has the entries, and gives them small
// numbers ([ID]). [New] makes a policy by its name.
//
// [Policy] is the whole contract for most: Miss and Add for a new entry, Touch
// for a hit, Evict for the next victim, Allow for a refused one that may go
// now. [Renewer], [Leaver] and [MetaReader] serve policies that use more of what the owner
// knows. A [Planner] observes whole requests, and may admit a chunk or not.
// Package policytest has the conformance suite that every policy passes.
//
// # Never does
//
// A policy never reads a clock, starts a goroutine, does I/O or sees a key: it
// knows an entry by its number and 64 bits of hash. So equal calls have equal
// victims, in a replay and in the daemon.
//
// # Locks and buffers
//
// None: the owner serialises the calls. No argument is kept beyond a call, but
// for the function of a MetaReader.
//
// # One order, and entries outside of it
//
// A queue is a doubly linked list in the order in which entries would go. An
// entry that the owner refuses leaves the list but keeps its rank, a counter
// given when it was put there. When Allow names it, it comes back to the front
// of the list if that is its rank, and else through a heap ordered by rank;
// the next victim is the lower of the list's front and the heap's top. That is
// the cursor of the contract: the front of the list is where the scan stands,
// and an entry that it has passed is not inspected again until a call names it.
// So refusals cost one step each, and victims are those of a scan that starts
// over every time. Package policytest holds that slow scan and compares.
//
// lru, fifo and mru are one such queue; lfu has one for each frequency, arc
// and s3fifo have two. Where a policy prefers one queue and all there is refused, it tries
// the other.
//
// # Ghosts
//
// arc and s3fifo remember the hashes of their victims, weighed as the entries
// were: arc as many as make two capacities together with the residents,
// s3fifo 0.9 of one. Removing an entry leaves no ghost, unless
// the owner says that it lets it go for room ([Leaver]). A ghost is known by 32
// bits, which is exact for hashes below 2³², as those of a replay are; among
// ten million ghosts one other hash in 400 is taken for one.
//
// # Memory
//
// Entries live in pages of 4,096 nodes without pointers, 16 bytes each, in
// the order of their IDs. Growth adds a page and moves nothing, so ten
// million entries never stall a call, and the garbage collector sees one
// pointer a page. Hashes and sizes, which the owner has anyway, are read from
// it ([MetaReader]). So an entry takes, and 4 bytes more while it waits in a
// heap:
//
//   - lru, fifo, mru: 16
//   - lfu: 20, and 20 for each frequency that something listed has
//   - arc, s3fifo: 16, and 16 for each ghost
//
// With one ghost for each entry that is 40 at most. A ghost of arc and s3fifo
// takes up to twice its 16 where most around it are asked for again before
// their time, and an entry with such a one 52. Ghosts are kept in runs of 256
// records; a call that drops one looks at three runs at most, and what becomes
// free is used for other ghosts at once.
//
// # Planners
//
// tenure wants to see whole requests and may refuse an entry: it implements
// [Planner] beside Policy. Its victims are in cells, one list for each class
// and age; the same rule holds there: a refused entry leaves its cell until
// Allow puts it back. It keeps the tree of the residents itself (Meta.Parent)
// and offers leaves only; Evict's ok has the last word.
//
// Its tables promise how much will be asked for again. Where much less is, it
// ranks by age until that changes: see trust. Where little was observed, or the
// cache is so small that ages tell nothing, it evicts by last use and refuses
// nothing: see regime.
//
// Where Request.PrefillDepth says so, what it takes to compute a chunk again
// multiplies its value: see costSteps.
//
// A training is due every 256 requests in the long run, and takes about a
// millisecond with 131,072 chunks watched. It runs within Observe, so that
// equal calls have equal victims, or, where the owner defers it, as a
// [Training] in steps, of which only the short ones need the owner's lock.
package policy
