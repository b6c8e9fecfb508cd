package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/socket"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/lab/simulate"
	"github.com/kvstored/kvstored/policy"
)

const (
	chatBlocks = 128  // of DRAM
	chatBytes  = 4096 // of a block
)

// chats is a trace of conversations that go on bit by bit among documents that
// are asked about once.
func chats(requests int) string {
	var out strings.Builder
	r := rand.New(rand.NewPCG(1, 2))
	var live [30][]int
	next := 0
	for range requests {
		ids, more := []int(nil), 20+r.IntN(10)
		c := &live[r.IntN(len(live))]
		if r.IntN(2) == 0 {
			ids, more = *c, 1+r.IntN(2)
		}
		for range more {
			ids = append(ids, next)
			next++
		}
		if more < 20 {
			if *c = ids; len(ids) > 12 {
				*c = nil
			}
		}
		list := strings.ReplaceAll(strings.Trim(fmt.Sprint(ids), "[]"), " ", ", ")
		fmt.Fprintf(&out, `{"timestamp": 0, "input_length": %d, "output_length": 1, "hash_ids": [%s]}`+"\n", 512*len(ids)-r.IntN(500), list)
	}
	return out.String()
}

// playChats plays a trace over a socket against a store of DRAM alone, whose
// policy learns within the requests: equal calls have equal victims.
func playChats(t *testing.T, name, trace string) replay.Result {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const capacity = chatBlocks * chatBytes
	a, err := arena.New(arena.Options{CapacityBytes: capacity, HugePages: "off"})
	must(err)
	defer a.Close()
	p, err := policy.New(name, capacity)
	must(err)
	hot := cpu.New(cpu.Options{
		Arena: a, Ledger: ledger.New(ledger.Options{CapacityBytes: capacity, Policy: p, PolicyName: name}),
		HighWatermark: 1, LowWatermark: 1,
	})
	defer hot.Close()
	st := store.New(store.Options{Hot: hot, Log: zerolog.Nop()})
	s := server.New(server.Options{
		Store: st, Arena: a, Log: zerolog.Nop(),
		Settings: server.Settings{
			LeaseMaxAge: time.Minute, PinMaxAge: time.Minute,
			Prefetch:    server.Prefetch{Policy: wire.PolicyWaitComplete, WindowBytes: 1 << 20},
			ChunkTokens: 512, Method: "sha256",
		},
		Stats: func(wire.Rights) ([]byte, error) { return []byte("{}"), nil },
	})
	path := filepath.Join(t.TempDir(), "s")
	l, err := socket.Listen(path, 0o600, "")
	must(err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- s.Serve(ctx, l) }()
	go func() { ended <- st.Run(ctx) }()
	result, err := replay.Run(t.Context(), replay.Options{
		Trace: strings.NewReader(trace), Name: "chats", Socket: path, Concurrency: 1,
		BlockTokens: 512, PayloadBytes: chatBytes, SaveUnfull: true,
	})
	must(err)
	cancel()
	must(<-ended)
	must(<-ended)
	return result
}

// TestLiveIsAsSimulated: over the socket a policy hits what the simulator says
// it would, twice the same, and tenure stores less and hits more than lru.
func TestLiveIsAsSimulated(t *testing.T) {
	text := chats(300)
	trace, err := simulate.Read(strings.NewReader(text), "chats", simulate.Reading{BlockTokens: 512, SaveUnfull: true})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := simulate.Run(t.Context(), trace, simulate.Options{Policies: []string{"lru", "tenure"}, Capacities: []int{chatBlocks}, Tree: true})
	if err != nil {
		t.Fatal(err)
	}
	live := make(map[string]replay.Result)
	for _, row := range rows {
		r := playChats(t, row.Policy, text)
		live[row.Policy] = r
		t.Logf("%s: %.4f simulated, %.4f live, %d of %d blocks stored", row.Policy, row.OverallHitRate, r.OverallHitRate, r.StoredBlocks, r.BlockAccesses)
		if math.Abs(r.OverallHitRate-row.OverallHitRate) > 0.01 {
			t.Errorf("%s: %.4f simulated, %.4f live", row.Policy, row.OverallHitRate, r.OverallHitRate)
		}
		if r.Mismatches+r.RevokedRequests > 0 || !r.Complete {
			t.Errorf("%s: %+v", row.Policy, r)
		}
	}
	again := playChats(t, "tenure", text)
	ten, lru := live["tenure"], live["lru"]
	if again.TotalHitTokens != ten.TotalHitTokens || again.StoredBlocks != ten.StoredBlocks || again.RefusedBlocks != ten.RefusedBlocks {
		t.Errorf("a rerun has %d hit tokens, %d blocks stored, %d refused; before %d, %d, %d", again.TotalHitTokens, again.StoredBlocks,
			again.RefusedBlocks, ten.TotalHitTokens, ten.StoredBlocks, ten.RefusedBlocks)
	}
	if ten.TotalHitTokens <= lru.TotalHitTokens || ten.StoredBlocks*10 > lru.StoredBlocks*9 {
		t.Errorf("tenure: %d hit tokens, %d blocks stored; lru: %d and %d", ten.TotalHitTokens, ten.StoredBlocks, lru.TotalHitTokens, lru.StoredBlocks)
	}
}
