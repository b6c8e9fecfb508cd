package index

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Options bound an index. The zero Options are the defaults.
type Options struct {
	// Bytes is what blocks, sets and aliases of all shards may take, in memory
	// in use; pages that are partly in use come on top, at most as much again.
	// When it is reached the coldest leaves go. 0 = 1 GiB; at least 64 KiB.
	Bytes int64
	// MaxEvent is the most blocks in one call. 0 = 65,536.
	MaxEvent int
	// MaxShards is the most shards. 0 = 4,096.
	MaxShards int
	// MaxWorkers is the most workers. 0 = 65,536; at most 16 million.
	MaxWorkers int
	// Now is the clock. nil = time.Now.
	Now func() time.Time
}

const (
	defaultBytes      = 1 << 30
	minBytes          = 64 << 10
	defaultMaxEvent   = 65536
	defaultMaxShards  = 4096
	defaultMaxWorkers = 65536
	maxBlockTokens    = 1 << 20
)

// Name is what all blocks of a shard have in common. Prompts of different
// shards share nothing.
type Name struct {
	Model, Tenant, Salt, LoRA string
}

// String is the name as errors have it.
func (n Name) String() string {
	text := fmt.Sprintf("model %q", n.Model)
	for _, p := range []struct{ what, value string }{{"tenant", n.Tenant}, {"salt", n.Salt}, {"LoRA", n.LoRA}} {
		if p.value != "" {
			text += fmt.Sprintf(", %s %q", p.what, p.value)
		}
	}
	return text
}

// Config is what a shard needs to know of its model.
type Config struct {
	// BlockTokens is the number of tokens in a block, on all workers.
	BlockTokens int
	// Groups are the groups of layers, in the order of the engine's numbers; one
	// of them at least is full. Empty: one full group. At most [MaxGroups].
	Groups []Group
	// Hash is how blocks are named.
	Hash Hash
}

// Index says which workers hold which prefixes. All its methods, and those of
// its shards, may be called from any number of goroutines.
type Index struct {
	options Options
	seed    [2]uint64 // of the tables
	born    time.Time

	shards  atomic.Pointer[map[Name]*Shard] // replaced, never changed
	workers atomic.Pointer[registry]        // replaced, never changed
	ticks   atomic.Uint32                   // the clock, as of the last change
	bytes   atomic.Int64                    // in use, of all shards

	mu      sync.Mutex // of what follows, and of replacing the above. Before any Shard.mu
	schemes schemes
	idle    []uint32 // slots whose worker left without a trace

	trimming sync.Mutex // one at a time. Before any Shard.mu
	sweep    sweep      // the one under way
}

// New makes an empty index.
func New(o Options) (*Index, error) {
	for _, opt := range []struct {
		name              string
		value             *int
		initial, low, top int
	}{
		{"MaxEvent", &o.MaxEvent, defaultMaxEvent, 1, 1 << 24},
		{"MaxShards", &o.MaxShards, defaultMaxShards, 1, 1 << 20},
		{"MaxWorkers", &o.MaxWorkers, defaultMaxWorkers, 1, maxSlots},
	} {
		if *opt.value == 0 {
			*opt.value = opt.initial
		}
		if *opt.value < opt.low || *opt.value > opt.top {
			return nil, fmt.Errorf("new index: %s = %d: %w; %d to %d", opt.name, *opt.value, ErrOption, opt.low, opt.top)
		}
	}
	if o.Bytes == 0 {
		o.Bytes = defaultBytes
	}
	if o.Bytes < minBytes {
		return nil, fmt.Errorf("new index: Bytes = %d: %w; at least %d", o.Bytes, ErrOption, minBytes)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	x := &Index{options: o, seed: [2]uint64{rand.Uint64(), rand.Uint64() | 1}, born: o.Now()}
	x.schemes = schemes{named: make(map[string]uint16), users: make(map[uint16]int)}
	x.shards.Store(&map[Name]*Shard{})
	x.workers.Store(&registry{slots: make(map[Worker]uint32)})
	return x, nil
}

// Open makes a shard. One that is there already is an error.
func (x *Index) Open(n Name, c Config) (*Shard, error) {
	if len(c.Groups) == 0 {
		c.Groups = make([]Group, 1)
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("open %s: %w", n, err)
	}
	for _, part := range []string{n.Model, n.Tenant, n.Salt, n.LoRA} {
		if len(part) > maxNameBytes {
			return nil, fmt.Errorf("open a shard with a name of %d bytes: %w; at most %d", len(part), ErrOption, maxNameBytes)
		}
	}
	c.Groups = slices.Clone(c.Groups)
	x.mu.Lock()
	defer x.mu.Unlock()
	old := *x.shards.Load()
	if _, there := old[n]; there {
		return nil, fmt.Errorf("open %s: %w", n, ErrShardExists)
	}
	if len(old) == x.options.MaxShards {
		return nil, fmt.Errorf("open %s: %w; there are %d", n, ErrTooManyShards, len(old))
	}
	shards := make(map[Name]*Shard, len(old)+1)
	for name, s := range old {
		shards[name] = s
	}
	s := newShard(x, n, c)
	shards[n] = s
	x.shards.Store(&shards)
	return s, nil
}

func (c Config) check() error {
	if c.BlockTokens < 1 || c.BlockTokens > maxBlockTokens {
		return fmt.Errorf("%d tokens: %w; 1 to %d", c.BlockTokens, ErrBlockTokens, maxBlockTokens)
	}
	return CheckGroups(c.Groups)
}

// partial has a bit for each group that is not full.
func (c Config) partial() (groups uint8) {
	for i, g := range c.Groups {
		if g.Kind != Full {
			groups |= 1 << i
		}
	}
	return groups
}

// Shard returns an open shard. The error tells a model of which nothing is open
// from a tenant, salt or LoRA that is not.
func (x *Index) Shard(n Name) (*Shard, error) {
	shards := *x.shards.Load()
	if s := shards[n]; s != nil {
		return s, nil
	}
	for name := range shards {
		if name.Model == n.Model {
			return nil, fmt.Errorf("%s: %w; open it first", n, ErrUnknownShard)
		}
	}
	return nil, fmt.Errorf("%s: %w; open it first", n, ErrUnknownModel)
}

// Drop closes a shard and forgets it.
func (x *Index) Drop(n Name) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	s, err := x.Shard(n)
	if err != nil {
		return fmt.Errorf("drop: %w", err)
	}
	shards := make(map[Name]*Shard)
	for name, other := range *x.shards.Load() {
		if name != n {
			shards[name] = other
		}
	}
	x.shards.Store(&shards)
	s.drop()
	return nil
}

// Names returns the names of all open shards, in order.
func (x *Index) Names() []Name {
	var all []Name
	for n := range *x.shards.Load() {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b Name) int {
		return slices.Compare([]string{a.Model, a.Tenant, a.Salt, a.LoRA}, []string{b.Model, b.Tenant, b.Salt, b.LoRA})
	})
	return all
}

// Clear forgets what a worker holds in all shards, in some media or, if none is
// named, in all.
func (x *Index) Clear(w Worker, media ...Medium) error {
	if _, err := x.workers.Load().slot(w); err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	for _, s := range *x.shards.Load() {
		if err := s.Clear(w, media...); err != nil && !errors.Is(err, ErrDropped) {
			return err
		}
	}
	return nil
}

// Stats are numbers of an index or a shard.
type Stats struct {
	Shards  int
	Workers int
	Blocks  int   // blocks of chains, each once
	Sets    int   // different sets of two and more holders
	Aliases int   // names that engines gave
	Claims  int   // blocks of workers with a time to live, each for each medium
	Bytes   int64 // in use, as the budget counts
	Memory  int64 // of all pages and tables
	Trimmed int64 // blocks that went for the budget
	Expired int64 // claims that grew too old
}

// Stats adds up the numbers of all shards.
func (x *Index) Stats() Stats {
	sum := Stats{Workers: len(x.workers.Load().slots)}
	for _, s := range *x.shards.Load() {
		one := s.Stats()
		sum.Shards++
		sum.Blocks += one.Blocks
		sum.Sets += one.Sets
		sum.Aliases += one.Aliases
		sum.Claims += one.Claims
		sum.Bytes += one.Bytes
		sum.Memory += one.Memory
		sum.Trimmed += one.Trimmed
		sum.Expired += one.Expired
	}
	return sum
}

// tickTime is the grain of the clock by which the coldest leaf is told: 32 bits
// of it are 497 days; a later clock stands still.
const tickTime = 10 * time.Millisecond

// tick reads the clock, for stamps.
func (x *Index) tick() uint32 {
	now := uint32(min(max(x.options.Now().Sub(x.born)/tickTime, 1), 1<<32-1))
	if now > x.ticks.Load() {
		x.ticks.Store(now)
	}
	return now
}

// seconds is the clock by which claims expire.
func (x *Index) seconds() uint32 {
	return uint32(min(max(x.options.Now().Sub(x.born)/time.Second, 0), 1<<32-1))
}
