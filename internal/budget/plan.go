package budget

// Memory of the daemon beside the arena, its clients, the index of chunks, and the
// database's process.
const (
	// ownBytes is for the program and its tables.
	ownBytes = 96 << 20
	// arenaShare is one part in so many of the arena: its page tables, 8 bytes
	// for 4 KiB, and as much for the states of its blocks.
	arenaShare = 256
	// marginBytes stays free of the Go heap, for its stacks and the kernel's
	// buffers.
	marginBytes = 64 << 20
	// mostBytes is what clients get at most where nothing says how much.
	mostBytes = 1 << 30
	// leastLimit is what GoLimit is at least.
	leastLimit = 160 << 20
)

// The tables of chunks get three eighths of what the arena, the database and
// the program leave, at most chunksMost and one part in chunksShare of all.
const (
	chunksMost  = 256 << 20
	chunksShare = 16
	// chunksUnknown is what it gets at most where nothing says how much there is.
	chunksUnknown = 1 << 30
)

// Chunks says how many chunks the daemon may know of.
type Chunks struct {
	// EachBytes is what one costs: its entries in the books of DRAM and disk, its
	// place in the index and its extent.
	EachBytes int64
	// Number is derived from the memory, between these two.
	Least int64
	Most  int64 // that it makes sense to know of
}

// Plan is how the memory of a control group, or of the machine, is divided. All
// are bytes but Number.
type Plan struct {
	Limit    int64 // of the group; 0 = not known
	Arena    int64
	Database int64 // its process
	Own      int64 // the daemon's
	Chunks   int64 // what is known of chunks, Number at most
	Clients  int64 // of the Budget
	Garbage  int64 // of the clients', until it is collected
	Number   int64
}

// NewPlan divides limit, 0 = not known. clients is the share of the clients; 0 has
// it derived: five eighths of the rest of limit, for the collector lets a heap
// grow beyond its live bytes, but at least least and at most 1 GiB.
func NewPlan(limit, arena, database, clients, least int64, chunks Chunks) Plan {
	p := Plan{Limit: limit, Arena: arena, Database: database, Own: ownBytes + arena/arenaShare, Clients: clients}
	p.Number = chunks.derive(limit, limit-arena-database-p.Own)
	p.Chunks = p.Number * chunks.EachBytes
	if clients == 0 {
		p.Clients = mostBytes
		if limit > 0 {
			p.Clients = min(max((limit-arena-database-p.Own-p.Chunks)/8*5, least), mostBytes)
		}
	}
	p.Garbage = p.Clients / 5 * 3
	return p
}

// derive is the number of chunks, where rest of limit is left.
func (c *Chunks) derive(limit, rest int64) int64 {
	bytes := int64(chunksUnknown)
	if limit > 0 {
		bytes = min(rest/8*3, chunksMost+limit/chunksShare)
	}
	return max(min(bytes/c.EachBytes, c.Most), c.Least)
}

// Total is what all come to.
func (p *Plan) Total() int64 {
	return p.Arena + p.Database + p.Own + p.Chunks + p.Clients + p.Garbage
}

// Short is how much more that is than there is; 0 where it fits, or where that is
// not known.
func (p *Plan) Short() int64 {
	if p.Limit == 0 {
		return 0
	}
	return max(0, p.Total()-p.Limit)
}

// GoLimit is the limit for the heap of the daemon: all that the others leave of
// the group, so that a large index does not have the collector run without end. 0
// = none.
func (p *Plan) GoLimit() int64 {
	if p.Limit == 0 {
		return 0
	}
	return max(p.Limit-p.Arena-p.Database-p.Arena/arenaShare-marginBytes, leastLimit)
}
