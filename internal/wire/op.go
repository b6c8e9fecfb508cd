package wire

// Version is the protocol version of this package, the only one that it speaks.
const Version = 2

// Magic starts the body of hello, the first frame of every connection.
const Magic = "KVS1"

// Op is an operation. Numbers are only ever added.
type Op uint8

// The operations. 22 to 29 and 32 are not used again, 33 to 39 are kept for later ones.
const (
	OpHello     Op = 1  // open the conversation: version, rights, descriptors
	OpOpenSpace Op = 2  // get a handle for a space
	OpLookup    Op = 3  // how much of a prompt is there; reads memory only
	OpPrefetch  Op = 4  // lookup, lease the run in DRAM, promote the rest; its number is also that of pushes about jobs
	OpWait      Op = 5  // answer when enough of a job is ready
	OpCancel    Op = 6  // end a request that waits
	OpReserve   Op = 7  // room for chunks to be stored; its number is also that of pushes about fills
	OpCommit    Op = 8  // make filled chunks visible
	OpAbort     Op = 9  // give up reserved chunks
	OpPut       Op = 10 // store payloads sent inline
	OpGet       Op = 11 // read payloads inline
	OpRelease   Op = 12 // end a job, give its lease back and learn whether it held
	OpRenew     Op = 13 // start the age of a lease or a fill anew
	OpPin       Op = 14 // protect a chain under a name
	OpUnpin     Op = 15 // end that
	OpDelete    Op = 16 // forget chunks, a chain or a space
	OpFlush     Op = 17 // wait until the unwritten chunks are written
	OpStats     Op = 18 // counters as JSON
	OpPing      Op = 19 // nothing
	OpWarm      Op = 20 // promote a chain to DRAM without leasing it, while no client loads
	OpBatch     Op = 21 // a prefetch for each of many prompts, and the order to run them in
	OpHint      Op = 30 // say something of the future of a prompt, without asking for it
	OpEvents    Op = 31 // what the tiers come to have and lose, as pushes, until it is cancelled
)

func (o Op) String() string { return name(opNames[:], uint16(o), "op") }

// Known reports whether this package knows o.
func (o Op) Known() bool { return int(o) < len(opNames) && opNames[o] != "" }

var opNames = [...]string{
	OpHello: "hello", OpOpenSpace: "open_space", OpLookup: "lookup", OpPrefetch: "prefetch",
	OpWait: "wait", OpCancel: "cancel", OpReserve: "reserve", OpCommit: "commit", OpAbort: "abort",
	OpPut: "put", OpGet: "get", OpRelease: "release", OpRenew: "renew", OpPin: "pin",
	OpUnpin: "unpin", OpDelete: "delete", OpFlush: "flush", OpStats: "stats", OpPing: "ping",
	OpWarm: "warm", OpBatch: "batch", OpHint: "hint", OpEvents: "events",
}
