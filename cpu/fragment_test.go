package cpu_test

import (
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
)

var (
	churnBytes = flag.Int64("cpu-churn-bytes", 64<<20, "size of the arena of TestFragmentation and TestRoomForLargerChunks; 268435456 for a long run")
	churnTurns = flag.Int64("cpu-churn-turns", 5, "how often TestFragmentation turns its arena over; 15 for a long run")
)

// churn fills an arena again and again with prompts of one chunk, and touches
// one of the coldest half of the time. A payload begins with its number.
type churn struct {
	t       testing.TB
	r       *rand.Rand
	tier    *cpu.Tier
	arena   *arena.Arena
	cold    []key.Key // resident, the coldest first
	puts    int
	refused int // had no room, with as much evicted as one may
	next    uint64
}

func newChurn(t testing.TB, capacity int64) *churn {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: capacity, HugePages: "off"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	lru, err := policy.New("lru", capacity)
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: lru})
	return &churn{
		t: t, r: rand.New(rand.NewPCG(1, 2)), arena: a,
		tier: cpu.New(cpu.Options{Arena: a, Ledger: l, HighWatermark: 1, LowWatermark: 1}),
	}
}

// put stores one chunk of n bytes and returns whether it had room.
func (c *churn) put(n int) bool {
	c.next++
	k := key.Key{}
	binary.LittleEndian.PutUint64(k.Hash[:], c.next)
	evicted, last := 0, 0
	ref, _, err := c.tier.Reserve(c.t.Context(), tier.Fill{
		Record: tier.Record{Key: k, Tokens: 1, Size: uint32(n)}, Class: ledger.IO,
		Drop: func(v tier.Victim) bool {
			evicted, last = evicted+int(v.Size), int(v.Size)
			i := slices.Index(c.cold, v.Key)
			c.cold = slices.Delete(c.cold, i, i+1)
			v.Block.Release()
			return false
		},
	})
	c.puts++
	if evicted-last > 3*(n+arena.AlignBytes) {
		c.t.Errorf("chunk %d of %d bytes evicted %d, the last one %d", c.next, n, evicted, last)
	}
	if err != nil {
		c.refused++
		return false
	}
	binary.LittleEndian.PutUint64(ref.Block.Bytes(), c.next)
	ref.Block.Seal()
	c.tier.Publish([]tier.Ref{ref}, false, false)
	c.cold = append(c.cold, k)
	return true
}

// touch uses one of the coldest 50.
func (c *churn) touch() {
	if len(c.cold) == 0 {
		return
	}
	i := c.r.IntN(min(50, len(c.cold)))
	k := c.cold[i]
	c.tier.Touch([]key.Key{k})
	c.cold = append(slices.Delete(c.cold, i, i+1), k)
}

// run turns the arena over some times and returns the share of it that is
// payload.
func (c *churn) run(size func() int) (live float64) {
	capacity := c.arena.Stats().CapacityBytes
	for sum := int64(0); sum < *churnTurns*capacity; {
		if c.r.IntN(2) == 0 {
			c.touch()
			continue
		}
		n := size()
		if c.put(n) {
			sum += int64(n)
		}
	}
	return float64(c.tier.Stats().PayloadBytes) / float64(capacity)
}

// check reads every payload, and compares the books of arena and ledger.
func (c *churn) check() {
	c.t.Helper()
	for _, k := range c.cold {
		b, err := c.tier.Get(c.t.Context(), k, nil)
		if err != nil {
			c.t.Fatal(err)
		}
		if n := binary.LittleEndian.Uint64(b.Bytes()); n != binary.LittleEndian.Uint64(k.Hash[:]) || !b.Verify() {
			c.t.Fatalf("chunk %x has the payload %x, or a wrong one", k.Hash[:8], n)
		}
		b.Release()
	}
	if st := c.arena.Stats(); st.UsedBytes != c.tier.Ledger().Stats().UsedBytes || st.Blocks != int64(len(c.cold)) {
		c.t.Errorf("the arena has %d bytes in %d blocks, the ledger %d in %d", st.UsedBytes, st.Blocks, c.tier.Ledger().Stats().UsedBytes, len(c.cold))
	}
}

// How much of the arena stays useful when sizes mix: evicting one candidate
// and trying again must neither leave it in pieces nor empty it.
func TestFragmentation(t *testing.T) {
	of := func(sizes ...int) func(*rand.Rand) int {
		return func(r *rand.Rand) int { return sizes[r.IntN(len(sizes))] }
	}
	for name, tc := range map[string]struct {
		size func(*rand.Rand) int
		live float64
	}{
		"4 to 512 KiB":            {func(r *rand.Rand) int { return int(4096 * math.Exp2(7*r.Float64())) }, 0.95},
		"one size":                {of(32 << 10), 0.99},
		"16 and 64 KiB":           {of(16<<10, 64<<10), 0.97},
		"16 KiB, 76 KiB, 512 KiB": {of(16<<10, 76<<10, 512<<10), 0.95},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChurn(t, *churnBytes)
			live := c.run(func() int { return tc.size(c.r) })
			t.Logf("%.1f %% payload, %d of %d refused, %d MiB moved", 100*live, c.refused, c.puts, c.tier.Stats().Counters["moved_bytes"]>>20)
			if live < tc.live || c.refused*1000 > c.puts {
				t.Errorf("%.1f %% payload, want %.0f; %d of %d refused", 100*live, 100*tc.live, c.refused, c.puts)
			}
			c.check()
		})
	}
}

// Small chunks that were last used in an order that has nothing to do with
// where they lie give way to large ones, and these to small ones: at no time is
// more than a tenth of the arena of no use, and nothing goes that the policy
// would have kept.
func TestRoomForLargerChunks(t *testing.T) {
	const small, large = 16 << 10, 512 << 10
	capacity := *churnBytes
	c := newChurn(t, capacity)
	fill := func(n int) (worst float64) {
		for range int(capacity) / n {
			if !c.put(n) {
				t.Fatalf("no room for chunk %d, of %d bytes", c.next, n)
			}
			worst = max(worst, 1-float64(c.tier.Stats().PayloadBytes)/float64(capacity))
		}
		return worst
	}
	fill(small)
	c.r.Shuffle(len(c.cold), func(i, j int) { c.cold[i], c.cold[j] = c.cold[j], c.cold[i] })
	for _, k := range c.cold {
		c.tier.Touch([]key.Key{k})
	}
	order := slices.Clone(c.cold)
	for range 32 { // into the midst of the small ones
		if !c.put(large) {
			t.Fatal("no room for a large chunk")
		}
	}
	if gone := len(order) - (len(c.cold) - 32); c.cold[0] != order[gone] || gone > 33*large/small {
		t.Errorf("%d small chunks went, and not the ones used least recently", gone)
	}
	c.check()
	for name, n := range map[string]int{"large": large, "small": small} {
		worst := fill(n)
		t.Logf("%s chunks: at worst %.1f %% of the arena unusable", name, 100*worst)
		if worst > 0.1 {
			t.Errorf("%s chunks: %.1f %% of the arena unusable", name, 100*worst)
		}
		c.check()
	}
}

// What a large chunk takes longer where small ones give way to it.
func BenchmarkReserve(b *testing.B) {
	const capacity, small, large = 256 << 20, 64 << 10, 2 << 20
	for name, first := range map[string]int{"2 MiB in place of 64 KiB": small, "2 MiB in place of 2 MiB": large} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(large)
			var c *churn
			left := 0
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					if c != nil {
						c.tier.Close()
						c.arena.Close()
					}
					c, left = newChurn(b, capacity), capacity/large
					for range capacity / first {
						c.put(first)
					}
					c.r.Shuffle(len(c.cold), func(i, j int) { c.cold[i], c.cold[j] = c.cold[j], c.cold[i] })
					c.tier.Touch(c.cold)
					b.StartTimer()
				}
				c.put(large)
				left--
			}
		})
	}
}
