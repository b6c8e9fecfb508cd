package simulate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

// slowPair is DRAM over a disk as one would write it down: who stands on a block,
// users and old blocks are searched for every time.
type slowPair struct {
	t            *Trace
	o            *TierOptions
	write        Write
	dram, disk   slowTier
	full         bool
	hits         map[uint32]int
	came         map[uint32]int64
	unsafe       map[uint32]bool // came, and the disk did not get it then
	written, now int64
}

type slowTier struct {
	pair     *slowPair
	model    policy.Policy
	planner  policy.Planner // nil: it does not plan
	capacity int
	in       map[uint32]bool
	used     []uint32
}

func newSlowPair(t *Trace, r *TierRow, o *TierOptions) *slowPair {
	p := &slowPair{t: t, o: o, write: r.Write, hits: map[uint32]int{}, came: map[uint32]int64{}, unsafe: map[uint32]bool{}}
	p.dram, p.disk = newSlowTier(p, r.Policy, r.CapacityBlocks), newSlowTier(p, r.DiskPolicy, r.DiskBlocks)
	return p
}

func newSlowTier(p *slowPair, name string, capacity int) slowTier {
	s := slowTier{pair: p, model: policytest.Model(name, int64(capacity)), capacity: capacity, in: map[uint32]bool{}}
	if slices.Contains(policy.Planners(), name) {
		s.planner = s.model.(policy.Planner)
	}
	return s
}

func (s *slowTier) kids(b uint32) bool {
	for child := range s.in {
		if s.pair.t.parents[child] == b+1 {
			return true
		}
	}
	return false
}

func (s *slowTier) begin(r *request, blocks []uint32, prefix int) {
	s.used = blocks[:prefix]
	if s.planner != nil {
		var hashes []uint64
		for _, b := range blocks {
			hashes = append(hashes, hashOf(b))
		}
		s.planner.Observe(policy.Request{Chain: hashes, ChunkTokens: r.per, Tokens: r.tokens})
	}
}

func (s *slowTier) miss(b uint32) {
	if s.planner == nil {
		s.model.Miss(hashOf(b), 1)
	}
}

func (s *slowTier) touch(b uint32) {
	if s.planner == nil {
		s.model.Touch(policy.ID(b))
	}
}

func (s *slowTier) wants(b uint32, coming int) bool {
	return s.planner == nil || len(s.in)+coming < s.capacity || s.planner.Admit(hashOf(b), uint64(s.pair.t.parents[b]))
}

func (s *slowTier) end(blocks []uint32) {
	s.used = nil
	for _, b := range blocks {
		if s.in[b] && !s.kids(b) {
			s.model.Allow(policy.ID(b))
		}
	}
}

func (s *slowTier) room(coming int, gone func(uint32)) bool {
	for len(s.in)+coming >= s.capacity {
		id, found := s.model.Evict(func(id policy.ID) bool { return !s.kids(uint32(id)) && !slices.Contains(s.used, uint32(id)) })
		if !found {
			return false
		}
		delete(s.in, uint32(id))
		if up := s.pair.t.parents[id]; up != 0 && s.in[up-1] && !s.kids(up-1) && !slices.Contains(s.used, up-1) {
			s.model.Allow(policy.ID(up - 1))
		}
		gone(uint32(id))
	}
	return true
}

func (s *slowTier) add(b uint32) {
	s.model.Add(policy.ID(b), policy.Meta{Hash: hashOf(b), Parent: uint64(s.pair.t.parents[b]), Size: 1})
	s.in[b] = true
}

func (p *slowPair) store(b uint32) bool {
	if p.disk.in[b] {
		return true
	}
	p.disk.miss(b)
	if !p.disk.wants(b, 0) || !p.disk.room(0, func(uint32) { p.full = true }) {
		return false
	}
	p.disk.add(b)
	if r, ok := p.disk.model.(policy.Renewer); ok {
		for up := p.t.parents[b]; up != 0; up = p.t.parents[up-1] {
			if p.disk.in[up-1] {
				r.Renew(policy.ID(up - 1))
			}
		}
	}
	p.written++
	return true
}

func (p *slowPair) request(r *request, blocks []uint32) (prefix, near int) {
	p.now = r.millis
	p.age()
	for prefix < len(blocks) && (p.dram.in[blocks[prefix]] || p.disk.in[blocks[prefix]]) {
		if p.dram.in[blocks[prefix]] {
			near++
		}
		prefix++
	}
	p.dram.begin(r, blocks, prefix)
	p.disk.begin(r, blocks, prefix)
	had := func(b uint32) bool { return p.dram.in[b] }
	kept, coming := 0, 0
	for ; kept < len(blocks); kept++ {
		if had(blocks[kept]) {
			continue
		}
		p.dram.miss(blocks[kept])
		if kept >= prefix && !p.worth(blocks[kept], coming) || !p.dram.room(coming, p.evicted) {
			break
		}
		coming++
	}
	hit := slices.DeleteFunc(slices.Clone(blocks[:prefix]), func(b uint32) bool { return !had(b) })
	for _, b := range slices.Backward(blocks[:kept]) {
		if had(b) {
			p.dram.touch(b)
			continue
		}
		p.dram.add(b)
		p.hits[b], p.came[b], p.unsafe[b] = 0, p.now, true
	}
	for _, b := range slices.Backward(blocks[:prefix]) {
		if p.disk.in[b] {
			p.disk.touch(b)
		}
	}
	for _, b := range hit {
		p.hits[b]++
	}
	for _, b := range blocks[:kept] {
		through := p.write == Through || p.write == Auto && !p.full
		if through && (p.came[b] == p.now || p.disk.planner != nil) || p.write == Selective && p.hits[b] >= p.o.MinHits {
			if !p.store(b) {
				break
			}
		}
	}
	for _, b := range blocks[:kept] {
		p.unsafe[b] = p.unsafe[b] && !p.disk.in[b]
	}
	p.dram.end(blocks)
	p.disk.end(blocks)
	return prefix, near
}

// worth: what only the disk wants must have been asked for before.
func (p *slowPair) worth(b uint32, coming int) bool {
	d := &p.disk
	return p.dram.wants(b, coming) || d.planner == nil || len(d.in) < d.capacity || d.planner.Seen(hashOf(b)) && d.wants(b, 0)
}

func (p *slowPair) evicted(b uint32) {
	if p.write != Selective || p.hits[b] >= p.o.MinHits {
		p.store(b)
	}
}

// age writes what DRAM alone has had for too long, the oldest first and in the order of
// prompts: here a prompt's blocks have rising numbers.
func (p *slowPair) age() {
	if p.write != Auto || p.o.UnsafeAge == 0 {
		return
	}
	var old []uint32
	for b := range p.dram.in {
		if p.came[b] <= p.now-p.o.UnsafeAge.Milliseconds() && p.unsafe[b] {
			old = append(old, b)
		}
	}
	slices.SortFunc(old, func(a, b uint32) int {
		if d := p.came[a] - p.came[b]; d != 0 {
			return int(d)
		}
		return int(a) - int(b)
	})
	for _, b := range old {
		p.unsafe[b] = false
		p.store(b)
	}
}

// TestTiersAgainstModel: prefixes, writes and the blocks of both tiers in
// the end are those of the model, for each policy, mode and size.
func TestTiersAgainstModel(t *testing.T) {
	seen := map[Write]map[int64]bool{}
	cases := []TierOptions{ // the first is more than tenure's guard has
		{Policies: []string{"lru", "tenure"}, DiskPolicies: []string{"tenure"}, Capacities: []int{80}, DiskCapacity: []int{120}, Writes: []Write{Through, Auto}},
	}
	for seed := range *seeds {
		disk := [][]string{{"lru", "arc"}, {"s3fifo", "lfu"}}[seed%2]
		cases = append(cases, TierOptions{Policies: policy.Names(), DiskPolicies: disk, Capacities: []int{5, 40}, DiskCapacity: []int{8, 60}})
	}
	for seed, o := range cases {
		trace := randomTrace(t, uint64(seed+2))
		if o.Writes == nil {
			o.Writes = Writes()
		}
		o.MinHits, o.UnsafeAge, o.PerRequest = 2, 20*time.Millisecond, true
		rows, err := RunTiers(t.Context(), trace, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := RunTiers(t.Context(), trace, o)
		if err != nil || !reflect.DeepEqual(rows, again) {
			t.Fatalf("another run has other rows, or %v", err)
		}
		for _, r := range rows {
			slow := newSlowPair(trace, &r, &o)
			sum := int64(0)
			for i, req := range trace.requests {
				prefix, _ := slow.request(&req, trace.blocks[trace.start(i):req.end])
				if want := int64(min(prefix*trace.blockTokens, req.tokens)); r.PerRequest[i] != want {
					t.Fatalf("%s over %s, %s, %d over %d, seed %d: request %d hit %d tokens, want %d", r.Policy, r.DiskPolicy, r.Write, r.CapacityBlocks, r.DiskBlocks, seed, i, r.PerRequest[i], want)
				}
				sum += r.PerRequest[i]
			}
			if r.WrittenBlocks != slow.written || r.FinalCacheBlocks != len(slow.dram.in) || r.FinalDisk != len(slow.disk.in) || r.TotalHitTokens != sum {
				t.Errorf("%+v; the model has written %d, and has %d and %d", r, slow.written, len(slow.dram.in), len(slow.disk.in))
			}
			if seen[r.Write] == nil {
				seen[r.Write] = map[int64]bool{}
			}
			seen[r.Write][r.WrittenBlocks] = true
		}
	}
	if reflect.DeepEqual(seen[Through], seen[Auto]) || reflect.DeepEqual(seen[Back], seen[Auto]) || len(seen[Selective]) < 3 {
		t.Errorf("modes write the same: %v", seen)
	}
}

// TestTiersByHand: with write-back two blocks of each tier are four of the store, and
// with write-through two.
func TestTiersByHand(t *testing.T) {
	var text strings.Builder
	for round := range 2 {
		for id := range 4 {
			fmt.Fprintf(&text, `{"timestamp": %d, "input_length": 512, "output_length": 1, "hash_ids": [%d]}`+"\n", 1000*(4*round+id), id)
		}
	}
	trace := parse(t, text.String())
	for _, tt := range []struct {
		write   Write
		age     time.Duration
		hits    int64
		written int64
	}{
		{Through, 0, 0, 8},
		{Back, 0, 2, 5}, // 0 and 1 go down, 2 and 3 for those that come back, and 1 again
		{Auto, 0, 1, 5}, // as Through for three blocks
		{Selective, 0, 0, 0},
		{Auto, time.Second, 0, 7}, // the last is not old
	} {
		o := TierOptions{Policies: []string{"lru"}, DiskPolicies: []string{"lru"}, Capacities: []int{2}, DiskCapacity: []int{2}, Writes: []Write{tt.write}, UnsafeAge: tt.age, MinHits: 2}
		rows, err := RunTiers(t.Context(), trace, o)
		if err != nil {
			t.Fatal(err)
		}
		if r := rows[0]; r.TotalHitTokens != 512*tt.hits || r.WrittenBlocks != tt.written {
			t.Errorf("%s, age %v: %d hits, %d written; want %d, %d", tt.write, tt.age, r.TotalHitTokens/512, r.WrittenBlocks, tt.hits, tt.written)
		}
	}
}

// TestTiersPlan: a planner in either tier, or in both, never stores a block it has no
// room for, and two runs are the same.
func TestTiersPlan(t *testing.T) {
	for seed := range *seeds {
		trace := randomTrace(t, seed)
		o := TierOptions{Policies: []string{"lru", "tenure"}, DiskPolicies: []string{"lru", "tenure"}, Writes: Writes(), Capacities: []int{9, 40}, DiskCapacity: []int{20}, MinHits: 2}
		rows, err := RunTiers(t.Context(), trace, o)
		if err != nil {
			t.Fatal(err)
		}
		again, err := RunTiers(t.Context(), trace, o)
		if err != nil || !reflect.DeepEqual(rows, again) {
			t.Fatalf("another run has other rows, or %v", err)
		}
		for _, r := range rows {
			if r.FinalCacheBlocks > r.CapacityBlocks || r.FinalDisk > r.DiskBlocks || r.DRAMHitTokens > r.TotalHitTokens || r.TotalHitTokens == 0 {
				t.Errorf("%+v", r)
			}
		}
	}
}

func TestTiersRefuse(t *testing.T) {
	good := func() TierOptions {
		return TierOptions{Policies: []string{"lru"}, DiskPolicies: []string{"lru"}, Capacities: []int{1}, DiskCapacity: []int{1}, Writes: []Write{Auto}}
	}
	if o := good(); o.Check() != nil {
		t.Fatal(o.Check())
	}
	for what, spoil := range map[string]func(*TierOptions){
		"a bound as a policy":    func(o *TierOptions) { o.DiskPolicies = []string{Belady} },
		"no disk":                func(o *TierOptions) { o.DiskCapacity = nil },
		"an empty disk":          func(o *TierOptions) { o.DiskCapacity = []int{0} },
		"an unknown mode":        func(o *TierOptions) { o.Writes = []Write{"around"} },
		"a negative age":         func(o *TierOptions) { o.UnsafeAge = -1 },
		"hits that cannot be":    func(o *TierOptions) { o.Writes, o.MinHits = []Write{Selective}, 256 },
		"a negative depth":       func(o *TierOptions) { o.PrefillDepth = -1 },
		"an unknown DRAM policy": func(o *TierOptions) { o.Policies = []string{"clock"} },
	} {
		o := good()
		if spoil(&o); o.Check() == nil {
			t.Errorf("%s: no error", what)
		}
	}
}
