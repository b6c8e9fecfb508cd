package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/policy"
)

// Keep is what a store knows of the groups of a hybrid model.
type Keep string

// The kinds of stores.
const (
	Dense Keep = "dense" // nothing: all groups of each block are one chunk
	Keys  Keep = "keys"  // the engine offers windows and states where they are of use; each chunk goes by itself
	Aware Keep = "aware" // a full chunk goes after those behind it, with the windows and states that stand on it
	Dead  Keep = "dead"  // Aware, and what no usable prefix needs goes first
)

// Keeps are all of them.
func Keeps() []Keep { return []Keep{Dense, Keys, Aware, Dead} }

// GroupPolicies are the names that [RunGroups] knows.
func GroupPolicies() []string { return append(policy.Names(), Infinite) }

// GroupOptions say what RunGroups simulates.
type GroupOptions struct {
	Model      *Model
	Policies   []string
	Keeps      []Keep
	Capacities []int // in blocks that have all of every group
	// DiskCapacity, if there is some, has a disk under each store, of each of these sizes
	// and with each of DiskPolicies. What comes to DRAM is written at once until the disk
	// is full, and then when DRAM evicts it, as with write.mode auto.
	DiskCapacity []int
	DiskPolicies []string
	PerRequest   bool
	// Done is told of each row as it is ready, one at a time. May be nil.
	Done func(GroupRow)
}

// GroupRow is what one policy made of a trace for a hybrid model.
type GroupRow struct {
	Policy            string     `json:"policy"`
	Store             Keep       `json:"store"`
	CapacityBlocks    int        `json:"capacity_blocks"` // with all of every group
	CapacityBytes     int64      `json:"capacity_bytes"`
	Requests          int        `json:"requests"`
	TotalPromptTokens int64      `json:"total_prompt_tokens"`
	TotalHitTokens    int64      `json:"total_hit_tokens"` // usable
	OverallHitRate    float64    `json:"overall_hit_rate"`
	LostTokens        int64      `json:"lost_tokens"` // that the full groups had, and another group lacked what it needs there
	LoadedBytes       int64      `json:"loaded_bytes"`
	BytesPerHitToken  float64    `json:"bytes_per_hit_token"`
	Groups            []GroupUse `json:"groups"` // of both tiers, each copy

	// Of a store with a disk.
	DiskPolicy  string `json:"disk_policy,omitempty"`
	DiskBlocks  int    `json:"disk_blocks,omitempty"`
	DiskBytes   int64  `json:"disk_bytes,omitempty"`
	LoadedBelow int64  `json:"loaded_below_bytes,omitempty"` // of LoadedBytes, what DRAM did not have

	PerRequest []int64 `json:"per_request,omitempty"` // hit tokens of each, where GroupOptions.PerRequest asks for them
}

// GroupUse is what a group occupies in the end. Those that are full are one.
type GroupUse struct {
	Kind      string `json:"kind"`
	Tokens    int    `json:"tokens,omitempty"` // of a window
	Chunks    int    `json:"chunks"`
	Bytes     int64  `json:"bytes"`
	DeadBytes int64  `json:"dead_bytes"` // that no usable prefix needs
}

// Check names the first fault of the options.
func (o *GroupOptions) Check() error {
	for _, name := range slices.Concat(o.Policies, o.DiskPolicies) {
		if !slices.Contains(GroupPolicies(), name) {
			return fmt.Errorf("policy %q is not simulated with groups; there are %s", name, strings.Join(GroupPolicies(), ", "))
		}
	}
	for _, k := range o.Keeps {
		if !slices.Contains(Keeps(), k) {
			return fmt.Errorf("store %q: use dense, keys, aware or dead", k)
		}
	}
	for _, c := range slices.Concat(o.Capacities, o.DiskCapacity) {
		if c < 1 {
			return fmt.Errorf("capacity of %d blocks: use at least 1", c)
		}
	}
	return nil
}

// RunGroups simulates every policy with every store at every capacity, on all
// processors, and returns the rows in that order.
func RunGroups(ctx context.Context, t *Trace, o GroupOptions) ([]GroupRow, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := t.CheckTree(); err != nil {
		return nil, err
	}
	rows := o.rows()
	return rows, playAll(ctx, rows, func(ctx context.Context, i int) error { return rows[i].play(ctx, t, &o) }, o.Done)
}

// Rows is how many RunGroups returns.
func (o *GroupOptions) Rows() int { return len(o.rows()) }

// rows are the rows of RunGroups, in their order.
func (o *GroupOptions) rows() (rows []GroupRow) {
	disks, below := o.DiskCapacity, o.DiskPolicies
	if len(disks) == 0 {
		disks, below = []int{0}, []string{""}
	}
	for _, name := range o.Policies {
		for _, under := range below {
			for _, keep := range o.Keeps {
				for _, c := range o.Capacities {
					for _, d := range disks {
						rows = append(rows, GroupRow{Policy: name, Store: keep, CapacityBlocks: c, DiskPolicy: under, DiskBlocks: d})
					}
				}
			}
		}
	}
	return rows
}

func (r *GroupRow) play(ctx context.Context, t *Trace, o *GroupOptions) error {
	f, err := r.family(t, o.Model)
	if err != nil {
		return err
	}
	at := 0
	for i, req := range t.requests {
		if i%askEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		hit := int64(min(f.request(t.blocks[at:req.end])*t.blockTokens, req.tokens))
		r.TotalHitTokens += hit
		if o.PerRequest {
			r.PerRequest = append(r.PerRequest, hit)
		}
		at = req.end
	}
	r.Requests, r.TotalPromptTokens = len(t.requests), t.promptTokens
	r.OverallHitRate = float64(r.TotalHitTokens) / float64(r.TotalPromptTokens)
	r.LoadedBytes, r.LostTokens = f.loaded, f.lost
	r.BytesPerHitToken = float64(r.LoadedBytes) / float64(max(1, r.TotalHitTokens))
	r.Groups = f.use()
	if r.DiskBlocks > 0 {
		r.LoadedBelow = f.below
	}
	return nil
}

// family makes the store of a row.
func (r *GroupRow) family(t *Trace, m *Model) (*family, error) {
	dense := int64(0)
	for _, g := range m.Groups {
		dense += g.Dense(t.blockTokens)
	}
	groups := Pieces(m, t.blockTokens)
	r.CapacityBytes, r.DiskBytes = int64(r.CapacityBlocks)*dense, int64(r.DiskBlocks)*dense
	if r.Store == Dense {
		groups = groups[:1]
		groups[0].Bytes = dense
	}
	f := newFamily(t, groups, r.Store)
	if err := f.addShelf(r.Policy, r.CapacityBytes); err != nil || r.DiskBlocks == 0 {
		return f, err
	}
	return f, f.addShelf(r.DiskPolicy, r.DiskBytes)
}

// Pieces are those of the groups of a model, for blocks of so many tokens. The full
// groups are one, the first.
func Pieces(m *Model, blockTokens int) []GroupPieces {
	groups := []GroupPieces{{index.Group{Chunk: blockTokens}, 0}}
	for _, g := range m.Groups {
		p := piecesOf(g, blockTokens)
		if p.Kind == index.Full {
			groups[0].Bytes += p.Bytes
		} else {
			groups = append(groups, p)
		}
	}
	return groups
}

// piecesOf is a group in blocks of so many tokens. Of a window that is shorter than
// a block no more than the window is stored.
func piecesOf(g ModelGroup, block int) GroupPieces {
	p := GroupPieces{index.Group{Chunk: block}, int64(g.BytesPerToken) * int64(block)}
	switch g.Kind {
	case "window":
		p.Kind, p.Tokens = index.Window, g.Window
		p.Bytes = int64(g.BytesPerToken) * int64(min(block, g.Window))
	case "local":
		p.Kind, p.Tokens = index.Local, g.Window
	case "state":
		p.Kind, p.Bytes = index.State, int64(g.StateBytes)
	}
	return p
}

func (f *family) use() []GroupUse {
	out := make([]GroupUse, len(f.groups))
	for g := range out {
		out[g].Kind, out[g].Tokens = f.groups[g].Kind.String(), f.groups[g].Tokens
	}
	for _, s := range f.shelves {
		for p, in := range s.in {
			if u, bytes := &out[f.group(uint32(p))], s.size(uint32(p)); in {
				u.Chunks++
				u.Bytes += bytes
				if f.keep != Keys && f.alive.count[p] == 0 {
					u.DeadBytes += bytes
				}
			}
		}
	}
	return out
}
