package cpu_test

import (
	"encoding/binary"
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

// churn fills an arena again and again with prompts of one chunk, and touches
// one of the coldest half of the time. No payload is ever written, so the
// arena costs no memory.
type churn struct {
	t       *testing.T
	r       *rand.Rand
	tier    *cpu.Tier
	arena   *arena.Arena
	cold    []key.Key // resident, the coldest first
	ratios  []float64 // evicted / asked for, of each, refused or not
	refused int       // had no room, with as much evicted as one may
	next    uint64
}

func newChurn(t *testing.T, capacity int64) *churn {
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
	evicted := int64(0)
	ref, _, err := c.tier.Reserve(c.t.Context(), tier.Fill{
		Record: tier.Record{Key: k, Tokens: 1, Size: uint32(n)}, Class: ledger.IO,
		Drop: func(v tier.Victim) bool {
			evicted += int64(v.Size)
			i := slices.Index(c.cold, v.Key)
			c.cold = slices.Delete(c.cold, i, i+1)
			v.Block.Release()
			return false
		},
	})
	c.ratios = append(c.ratios, float64(evicted)/float64(n))
	if err != nil {
		c.refused++
		return false
	}
	ref.Block.SealSum(0)
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

// run turns the arena over 15 times and returns the share of it that is
// payload, and the 99th percentile of what an allocation evicts.
func (c *churn) run(size func() int) (live, p99 float64) {
	capacity := c.arena.Stats().CapacityBytes
	for sum := int64(0); sum < 15*capacity; {
		if c.r.IntN(2) == 0 {
			c.touch()
			continue
		}
		n := size()
		if c.put(n) {
			sum += int64(n)
		}
	}
	slices.Sort(c.ratios)
	return float64(c.tier.Stats().PayloadBytes) / float64(capacity), c.ratios[len(c.ratios)*99/100]
}

// How much of the arena stays useful when sizes mix: evicting one candidate
// and trying again must neither leave it in pieces nor empty it.
func TestFragmentation(t *testing.T) {
	const capacity = 4 << 30
	mixed := func(r *rand.Rand) int { return mib << (2 * r.IntN(2)) }
	for name, tc := range map[string]struct {
		size func(*rand.Rand) int
		live float64
	}{
		"4 KiB to 32 MiB": {func(r *rand.Rand) int { return int(4096 * math.Exp2(13*r.Float64())) }, 0.75},
		"one size":        {func(*rand.Rand) int { return 2 * mib }, 0.99},
		"1 and 4 MiB":     {mixed, 0.97},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChurn(t, capacity)
			live, p99 := c.run(func() int { return tc.size(c.r) })
			t.Logf("%.1f %% payload, 99th percentile evicts %.2f times its size, %d of %d refused", 100*live, p99, c.refused, len(c.ratios))
			if live < tc.live || p99 > 4 || c.refused > len(c.ratios)/40 {
				t.Errorf("%.1f %% payload, want %.0f; 99th percentile %.2f, want at most 4; %d refused", 100*live, 100*tc.live, p99, c.refused)
			}
			if st := c.arena.Stats(); st.UsedBytes != c.tier.Ledger().Stats().UsedBytes {
				t.Errorf("the arena has %d bytes in use, the ledger %d", st.UsedBytes, c.tier.Ledger().Stats().UsedBytes)
			}
		})
	}
}
