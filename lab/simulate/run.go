package simulate

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/policy"
)

// The policies that only a simulation has. Belady is the optimum of block
// misses, not of hit tokens: these are counted by whole prefixes, so one that
// keeps prefixes together, or leaves some out, can have a few more.
const (
	Sieve    = "sieve"         // a hand that forgives each used block once
	GDSF     = "gdsf"          // fewest uses first, which age
	Static   = "s3fifo-static" // S3-FIFO with queues of fixed size; also called StaticToo
	Belady   = "belady"        // evicts what is used again last: none that stores every block misses fewer
	Infinite = "infinite"      // evicts nothing
)

// Policies lists the names that [Run] knows.
func Policies() []string {
	return slices.Concat(policy.Names(), policy.Planners(), []string{Sieve, GDSF, Static, Belady, Infinite})
}

// StaticToo is what other simulators call Static.
const StaticToo = "S3FIFO"

// IsFlat reports whether a policy cannot evict leaves only.
func IsFlat(name string) bool {
	return slices.Contains([]string{Sieve, GDSF, Static, StaticToo}, name)
}

// NeedsTree reports whether a policy is of whole prefixes with or without
// Options.Tree.
func NeedsTree(name string) bool { return slices.Contains(policy.Planners(), name) }

// Options say what Run simulates.
type Options struct {
	Policies   []string
	Capacities []int // in blocks
	Tree       bool  // evict leaves only
	PerRequest bool  // fill Row.PerRequest
	// PrefillDepth is how deep in a prompt a token takes twice as long to compute
	// as the first one does; 0 = DefaultPrefillDepth.
	PrefillDepth float64
	// ByCompute has tenure rank by what the tokens of a block take to compute, and not by
	// how many there are.
	ByCompute bool
	S3FIFO    S3FIFO
	// The hints that policies which take any are told.
	Oracle  bool // which blocks are not used again
	Answers bool // how long the answer to each prompt will be
	// Sessions is what clients say of their sessions to every policy that
	// evicts leaves only, and that is no bound.
	Sessions Sessions
	// Done is told of each row as it is ready, one at a time. May be nil.
	Done func(Row)
}

// weighed is the depth that policies are told of.
func weighed(byCompute bool, depth float64) int {
	if !byCompute {
		return 0
	}
	return max(1, int(cmp.Or(depth, DefaultPrefillDepth)))
}

// DefaultPrefillDepth is that of an 8-billion-parameter Llama 3.
const DefaultPrefillDepth = 30_000

// S3FIFO is the numbers of the policies "s3fifo" and Static; 0 is what the paper
// has, a tenth and 3.
type S3FIFO struct {
	SmallShare float64 // of the capacity, for the small queue
	MaxUses    int     // that count of a block
}

func (s S3FIFO) check() error {
	if s.SmallShare < 0 || s.SmallShare >= 1 || s.SmallShare != s.SmallShare {
		return fmt.Errorf("a small queue of %v of the room: use a share above 0 and below 1", s.SmallShare)
	}
	if s.MaxUses < 0 || s.MaxUses > policy.MostUses {
		return fmt.Errorf("%d uses that count: use 1 to %d", s.MaxUses, policy.MostUses)
	}
	return nil
}

func (s S3FIFO) orDefault() S3FIFO {
	return S3FIFO{cmp.Or(s.SmallShare, 0.1), cmp.Or(s.MaxUses, 3)}
}

// newPolicy makes a policy of a tier.
func newPolicy(name string, capacity int, o *Options) (policy.Policy, error) {
	if name == "s3fifo" {
		of := o.S3FIFO.orDefault()
		return policy.NewS3FIFO(int64(capacity), of.SmallShare, of.MaxUses), nil
	}
	return policy.New(name, int64(capacity))
}

// Sessions is what clients say of their sessions.
type Sessions uint8

// What clients may say.
const (
	Nothing Sessions = iota
	Turns            // that no prompt will go on from the last one
	Ends             // that a session is over, after its last request
	// Pauses is Ends, and after each other request how long the session
	// pauses, known to a factor of two. A disk below holds all that there
	// was: from half that time on missing blocks come back.
	Pauses
)

// Check names the first fault of the options.
func (o *Options) Check() error {
	known := Policies()
	for _, name := range o.Policies {
		switch {
		case name != StaticToo && !slices.Contains(known, name):
			return fmt.Errorf("no policy is called %q; there are %s", name, strings.Join(known, ", "))
		case IsFlat(name) && o.Tree:
			return fmt.Errorf("%s cannot evict leaves only: it has no place for what must stay", name)
		}
	}
	for _, c := range o.Capacities {
		if c < 1 {
			return fmt.Errorf("capacity of %d blocks: use at least 1", c)
		}
	}
	if d := o.PrefillDepth; d < 0 || d != d {
		return fmt.Errorf("a prefill depth of %v tokens: use a number above 0", d)
	}
	return o.S3FIFO.check()
}

// Run simulates every policy at every capacity, on all processors, and returns
// the rows by policy, then capacity.
func Run(ctx context.Context, t *Trace, o Options) ([]Row, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Tree || slices.ContainsFunc(o.Policies, NeedsTree) {
		if err := t.CheckTree(); err != nil {
			return nil, err
		}
	}
	if o.Answers && t.noOutput {
		return nil, fmt.Errorf("%w: it does not say how long each answer is", replay.ErrTrace)
	}
	if o.Sessions > Turns {
		if err := t.checkSessions(); err != nil {
			return nil, err
		}
	}
	rows := make([]Row, len(o.Policies)*len(o.Capacities))
	return rows, playAll(ctx, rows, func(ctx context.Context, i int) error {
		name, capacity := o.Policies[i/len(o.Capacities)], o.Capacities[i%len(o.Capacities)]
		p, err := newPlayer(t, name, capacity, &o)
		if err != nil {
			return err
		}
		rows[i], err = t.play(ctx, p, &o)
		rows[i].Policy, rows[i].CapacityBlocks = name, capacity
		return err
	}, o.Done)
}

// playAll plays each of rows, on all processors. done, unless nil, is told of each as it
// is ready, one at a time.
func playAll[R any](ctx context.Context, rows []R, play func(ctx context.Context, i int) error, done func(R)) error {
	var telling sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i := range rows {
		g.Go(func() error {
			if err := play(ctx, i); err != nil || done == nil {
				return err
			}
			telling.Lock()
			defer telling.Unlock()
			done(rows[i])
			return nil
		})
	}
	return g.Wait()
}

// player is a cache that is asked for whole requests.
type player interface {
	// request takes the blocks of one request, the first of which is access
	// number at of the trace. It returns the length of the prefix that was
	// resident before, and how many accesses found their block.
	request(at int, blocks []uint32) (prefix, hits int)
	len() int // resident blocks
}

func newPlayer(t *Trace, name string, capacity int, o *Options) (player, error) {
	s := newStore(t, capacity)
	switch name {
	case Infinite:
		s.capacity = len(t.blocks)
		s.policy = unused{}
	case Sieve:
		return &flat{newSieve(t.Distinct(), capacity)}, nil
	case GDSF:
		return &flat{newGDSF(t.Distinct(), capacity)}, nil
	case Static, StaticToo:
		return &flat{newStatic(t.Distinct(), capacity, o.S3FIFO.orDefault())}, nil
	case Belady:
		s.policy = &belady{next: t.nextUse(), uses: make([]uint32, t.Distinct()), now: &s.now}
	default:
		p, err := newPolicy(name, capacity, o)
		if err != nil {
			return nil, err
		}
		if p, ok := p.(policy.MetaReader); ok {
			p.ReadMetaFrom(s.told)
		}
		s.policy = p
	}
	planner, plans := s.policy.(policy.Planner)
	if !plans && !o.Tree {
		return &flat{s}, nil
	}
	leaves := newTree(s)
	if o.Sessions != Nothing && !IsBound(name) {
		leaves.idle = newIdle(leaves, t, o)
	}
	if plans {
		return &planned{tree: leaves, planner: planner, trace: t, o: o}, nil
	}
	return leaves, nil
}

// askEvery is how many requests are played between two looks at the context.
const askEvery = 1024

func (t *Trace) play(ctx context.Context, p player, o *Options) (Row, error) {
	r := Row{Requests: len(t.requests), TotalPromptTokens: t.promptTokens, BlockAccesses: len(t.blocks)}
	s := newScore(cmp.Or(o.PrefillDepth, DefaultPrefillDepth), len(t.requests), o.PerRequest)
	at := 0
	for i, req := range t.requests {
		if i%askEvery == 0 && ctx.Err() != nil {
			return Row{}, ctx.Err()
		}
		prefix, hits := p.request(at, t.blocks[at:req.end])
		s.add(min(prefix*t.blockTokens, req.tokens), req.tokens)
		r.BlockHits += hits
		at = req.end
	}
	r.BlockMisses = r.BlockAccesses - r.BlockHits
	r.FinalCacheBlocks = p.len()
	r.take(s)
	return r, nil
}

// IsBound reports whether a name is of a bound, Belady or Infinite, and of no
// policy that a cache could have.
func IsBound(name string) bool { return name == Belady || name == Infinite }
