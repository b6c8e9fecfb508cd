package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/kvstored/kvstored/policy"
)

// Write says when a block of DRAM is written to the disk, as write.mode of the
// daemon does.
type Write string

// The write modes. In each of them a block that DRAM evicts, and that the disk
// does not have, is written then; Selective leaves out blocks not hit often
// enough.
const (
	Through   Write = "through"   // when it comes to DRAM
	Back      Write = "back"      // when DRAM evicts it
	Auto      Write = "auto"      // Through until the disk is full, then Back, or after TierOptions.UnsafeAge
	Selective Write = "selective" // once it was hit TierOptions.MinHits times
)

// Writes lists the write modes.
func Writes() []Write { return []Write{Through, Back, Auto, Selective} }

// DefaultUnsafeAge is that of write.unsafe_age.
const DefaultUnsafeAge = 10 * time.Minute

// TierOptions say which pairs of DRAM and disk RunTiers simulates: each policy of
// DRAM with each of the disk, each write mode and each pair of sizes.
type TierOptions struct {
	Policies, DiskPolicies   []string
	Capacities, DiskCapacity []int // in blocks
	Writes                   []Write
	UnsafeAge                time.Duration // of the trace's time, for Auto; 0 = no bound
	MinHits                  int           // for Selective
	PrefillDepth             float64       // see Options
	ByCompute, DiskByCompute bool
	PerRequest               bool
	Done                     func(TierRow) // as Options.Done
}

// TierRow is what one pair made of a trace. What Row says of blocks and of the cache
// is of DRAM; a hit is of either tier.
type TierRow struct {
	Row
	DiskPolicy    string `json:"disk_policy"`
	DiskBlocks    int    `json:"disk_blocks"`
	Write         Write  `json:"write_mode"`
	DRAMHitTokens int64  `json:"dram_hit_tokens"` // of TotalHitTokens
	WrittenBlocks int64  `json:"written_blocks"`  // to the disk
	WrittenBytes  int64  `json:"written_bytes,omitempty"`
	FinalDisk     int    `json:"final_disk_blocks"`
}

// TierPolicies lists the policies that both tiers may have.
func TierPolicies() []string { return policy.All() }

// Check names the first fault of the options.
func (o *TierOptions) Check() error {
	for _, name := range slices.Concat(o.Policies, o.DiskPolicies) {
		if !slices.Contains(TierPolicies(), name) {
			return fmt.Errorf("no tier has a policy %q; there are %s", name, strings.Join(TierPolicies(), ", "))
		}
	}
	for _, c := range slices.Concat(o.Capacities, o.DiskCapacity) {
		if c < 1 {
			return fmt.Errorf("a tier of %d blocks: use at least 1", c)
		}
	}
	for _, w := range o.Writes {
		if !slices.Contains(Writes(), w) {
			return fmt.Errorf("no write mode is called %q; there are %v", w, Writes())
		}
	}
	switch {
	case o.UnsafeAge < 0:
		return fmt.Errorf("an unsafe age of %v: use 0 for no bound, or a time", o.UnsafeAge)
	case slices.Contains(o.Writes, Selective) && (o.MinHits < 1 || o.MinHits > 255):
		return fmt.Errorf("%d hits before a block is written: use 1 to 255", o.MinHits)
	case o.PrefillDepth < 0 || o.PrefillDepth != o.PrefillDepth:
		return fmt.Errorf("a prefill depth of %v tokens: use a number above 0", o.PrefillDepth)
	case len(o.DiskCapacity) == 0:
		return errors.New("the disk needs a size")
	}
	return nil
}

// RunTiers simulates every pair, on all processors, and returns the rows by
// policies, write mode and then sizes.
func RunTiers(ctx context.Context, t *Trace, o TierOptions) ([]TierRow, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := t.CheckTree(); err != nil {
		return nil, err
	}
	rows := o.rows()
	return rows, playAll(ctx, rows, func(ctx context.Context, i int) error { return rows[i].play(ctx, t, &o) }, o.Done)
}

// rows are the pairs, in their order.
func (o *TierOptions) rows() (rows []TierRow) {
	for _, name := range o.Policies {
		for _, below := range o.DiskPolicies {
			for _, w := range o.Writes {
				for _, c := range o.Capacities {
					for _, d := range o.DiskCapacity {
						rows = append(rows, TierRow{Row: Row{Policy: name, CapacityBlocks: c}, DiskPolicy: below, DiskBlocks: d, Write: w})
					}
				}
			}
		}
	}
	return rows
}

// play fills in what the pair of a row does.
func (r *TierRow) play(ctx context.Context, t *Trace, o *TierOptions) error {
	p, err := newPair(t, r, o)
	if err != nil {
		return err
	}
	s := newScore(cmp.Or(o.PrefillDepth, DefaultPrefillDepth), len(t.requests), o.PerRequest)
	r.Requests, r.TotalPromptTokens, r.BlockAccesses = len(t.requests), t.promptTokens, len(t.blocks)
	for i, req := range t.requests {
		if i%askEvery == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		prefix, near := p.request(&req, t.blocks[t.start(i):req.end])
		s.add(min(prefix*t.blockTokens, req.tokens), req.tokens)
		r.BlockHits += len(near)
		for _, at := range near {
			r.DRAMHitTokens += int64(min(t.blockTokens, req.tokens-at*t.blockTokens))
		}
	}
	r.BlockMisses = r.BlockAccesses - r.BlockHits
	r.FinalCacheBlocks, r.FinalDisk = p.dram.n, p.disk.n
	r.WrittenBlocks = p.written
	r.take(s)
	return nil
}
