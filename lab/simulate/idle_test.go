package simulate

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/lab/replay"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/policy/policytest"
)

// TestIdleSessions: the blocks that go, come back and are hit are those of a model that
// searches the whole trace every time; two runs are the same.
func TestIdleSessions(t *testing.T) {
	for seed := range *seeds {
		trace := randomSessions(t, seed)
		for _, capacity := range []int{1, 5, 13, 40, 90} {
			for _, said := range []Sessions{Ends, Pauses} {
				for _, name := range []string{"lru", "lfu", "tenure"} {
					what := fmt.Sprintf("seed %d, %s at %d, said %d", seed, name, capacity, said)
					fast, err := newPlayer(trace, name, capacity, &Options{Tree: true, Sessions: said})
					if err != nil {
						t.Fatal(err)
					}
					slow := newSlowIdle(trace, name, capacity, said)
					at := 0
					for turn, req := range trace.requests {
						prefix, _ := fast.request(at, trace.blocks[at:req.end])
						if want := slow.request(turn, trace.blocks[at:req.end]); prefix != want {
							t.Fatalf("%s, request %d: a prefix of %d, the model has %d", what, turn, prefix, want)
						}
						at = req.end
						leaves := treeOf(fast)
						leaves.check(t, what)
						if got := leaves.residents(); !slices.Equal(got, slow.residents()) {
							t.Fatalf("%s, request %d: %v are resident, the model has %v", what, turn, got, slow.residents())
						}
					}
				}
			}
		}
	}
}

func treeOf(p player) *tree {
	if p, ok := p.(*planned); ok {
		return p.tree
	}
	return p.(*tree)
}

func (t *tree) residents() (out []uint32) {
	for b, resident := range t.resident {
		if resident {
			out = append(out, uint32(b))
		}
	}
	return out
}

// slowIdle is a player that knows of sessions what the trace says of them, and
// finds it out anew whenever it chooses a victim.
type slowIdle struct {
	player
	leaves *tree
	trace  *Trace
	said   Sessions
	turn   int
	model  policy.Policy
}

func newSlowIdle(t *Trace, name string, capacity int, said Sessions) *slowIdle {
	model := policytest.Model(name, int64(capacity))
	s := &slowIdle{trace: t, said: said, model: model}
	s.leaves = newTree(&store{policy: choosing{model, s}, capacity: capacity, resident: make([]bool, t.Distinct()), parents: t.parents})
	s.player = s.leaves
	if planner, ok := model.(policy.Planner); ok {
		s.leaves.policy = choosingPlanner{planner, s}
		s.player = &planned{tree: s.leaves, planner: choosingPlanner{planner, s}, trace: t, o: &Options{}}
	}
	return s
}

func (s *slowIdle) residents() []uint32 { return s.leaves.residents() }

func (s *slowIdle) request(turn int, blocks []uint32) int {
	s.turn = turn
	if s.said == Pauses {
		s.wakeAll(turn)
	}
	at := 0
	if turn > 0 {
		at = s.trace.requests[turn-1].end
	}
	prefix, _ := s.player.request(at, blocks)
	return prefix
}

// due is when a session that had its last request before a turn is said to
// come back, or to stay away; from when on it is brought back; and that request.
func (s *slowIdle) due(session, turn int) (due, from int64, last int, idle bool) {
	last = -1
	for i := range turn {
		if s.trace.requests[i].session == session {
			last = i
		}
	}
	if last < 0 {
		return 0, 0, 0, false
	}
	for i := last + 1; i < len(s.trace.requests); i++ {
		if s.trace.requests[i].session != session {
			continue
		}
		if s.said == Ends {
			return 0, 0, 0, false
		}
		left := s.trace.requests[last].millis
		expected := expect(s.trace.requests[i].millis-left, last)
		return left + expected, left + expected/2, last, true
	}
	return over, over, last, true
}

// owned lists what only a session asked for before a turn, and in it if the
// turn has begun, in the order of the first uses.
func (s *slowIdle) owned(session, turns int) (out []uint32) {
	at := 0
	for _, r := range s.trace.requests[:turns] {
		for _, b := range s.trace.blocks[at:r.end] {
			if r.session == session && !slices.Contains(out, b) && s.alone(b, session, turns) {
				out = append(out, b)
			}
		}
		at = r.end
	}
	return out
}

func (s *slowIdle) alone(b uint32, session, turns int) bool {
	at := 0
	for _, r := range s.trace.requests[:turns] {
		if r.session != session && slices.Contains(s.trace.blocks[at:r.end], b) {
			return false
		}
		at = r.end
	}
	return true
}

// victim is the last of the session that is due last. turns are the requests
// that have begun; session is not idle.
func (s *slowIdle) victim(after int64, turns, session int) (uint32, bool) {
	var victim uint32
	latest, found := after, false
	for other := 1; other <= s.sessions(); other++ {
		due, _, _, idle := s.due(other, s.turn)
		if !idle || other == session || due <= latest {
			continue
		}
		for _, b := range s.owned(other, turns) {
			if s.leaves.resident[b] {
				victim, latest, found = b, due, true
			}
		}
	}
	return victim, found
}

func (s *slowIdle) sessions() (most int) {
	for _, r := range s.trace.requests {
		most = max(most, r.session)
	}
	return most
}

// wakeAll brings back the prompts that were due since the turn before.
func (s *slowIdle) wakeAll(turn int) {
	type call struct {
		from    int64
		last    int
		session int
		due     int64
	}
	var calls []call
	for session := 1; session <= s.sessions(); session++ {
		due, from, last, idle := s.due(session, turn)
		now := s.trace.requests[turn].millis
		done := turn > 0 && last < turn-1 && from <= s.trace.requests[turn-1].millis // at the turn before already
		if idle && due != over && from <= now && !done {
			calls = append(calls, call{from, last, session, due})
		}
	}
	slices.SortFunc(calls, func(a, b call) int {
		if a.from != b.from {
			return int(a.from - b.from)
		}
		return a.last - b.last
	})
	for _, c := range calls {
		start := 0
		if c.last > 0 {
			start = s.trace.requests[c.last-1].end
		}
		added := uint32(0)
		for i, b := range s.trace.blocks[start:s.trace.requests[c.last].end] {
			if s.leaves.resident[b] {
				continue
			}
			if s.leaves.n >= s.leaves.capacity {
				v, found := s.victim(c.due, turn, 0)
				if !found {
					break
				}
				s.model.Remove(policy.ID(v))
				s.leaves.evicted(v)
			}
			s.leaves.now = start + i
			s.leaves.add(b)
			s.leaves.adopt(b)
			added = b + 1
		}
		if added > 0 {
			s.model.Allow(policy.ID(added - 1))
		}
	}
}

// choosing is a policy that has the model's victims go first.
type choosing struct {
	policy.Policy
	s *slowIdle
}

func (c choosing) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	if b, found := c.s.victim(0, c.s.turn+1, c.s.trace.requests[c.s.turn].session); found {
		c.Policy.Remove(policy.ID(b))
		return policy.ID(b), true
	}
	return c.Policy.Evict(ok)
}

type choosingPlanner struct {
	policy.Planner
	s *slowIdle
}

func (c choosingPlanner) Admit(hash, parent uint64) bool {
	_, found := c.s.victim(0, c.s.turn+1, c.s.trace.requests[c.s.turn].session)
	return found || c.Planner.Admit(hash, parent)
}

func (c choosingPlanner) Evict(ok func(policy.ID) bool) (policy.ID, bool) {
	return choosing{c.Planner, c.s}.Evict(ok)
}

// randomSessions go on from their own last prompt, from an earlier one, or
// begin as another session did.
func randomSessions(t testing.TB, seed uint64) *Trace {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	var text strings.Builder
	next := 1000
	for range 12 {
		var turns []string
		ids := []string{"1", "2"}
		at := 0
		for range 1 + r.IntN(12) {
			if r.IntN(5) == 0 {
				ids = ids[:1+r.IntN(len(ids))]
			}
			for range 1 + r.IntN(3) {
				ids = append(ids[:len(ids):len(ids)], fmt.Sprint(next))
				next++
			}
			at += 1 + r.IntN(60)
			turns = append(turns, fmt.Sprintf(`{"t":%d,"in":%d,"hash_ids":[%s]}`, at, 64*len(ids), strings.Join(ids, ",")))
		}
		fmt.Fprintf(&text, `{"block_size":64,"hash_id_scope":"global","start":%d,"requests":[%s]}`+"\n", r.IntN(200), strings.Join(turns, ","))
	}
	trace, err := Read(strings.NewReader(text.String()), "random", Reading{BlockTokens: 64})
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

func TestSessionsMustBeKnown(t *testing.T) {
	trace := parse(t, line("1, 2", "1024"))
	if _, err := Run(t.Context(), trace, Options{Policies: []string{"tenure"}, Capacities: []int{9}, Sessions: Ends}); !errors.Is(err, replay.ErrTrace) || !strings.Contains(err.Error(), "sessions") {
		t.Errorf("a trace without sessions: error %v", err)
	}
}

// TestWholeBlocks: partial ones are not stored unless that is asked for, and
// count in the prompts all the same.
func TestWholeBlocks(t *testing.T) {
	text := line("1, 2", "700") + line("1, 2", "700") + line("7", "5") + line("7", "5")
	for unfull, want := range map[bool]Row{
		false: {TotalPromptTokens: 1410, TotalHitTokens: 512, BlockAccesses: 2, FinalCacheBlocks: 1, BlockHits: 1, BlockMisses: 1},
		true:  {TotalPromptTokens: 1410, TotalHitTokens: 705, BlockAccesses: 6, FinalCacheBlocks: 3, BlockHits: 3, BlockMisses: 3},
	} {
		trace, err := Read(strings.NewReader(text), "t", Reading{BlockTokens: 512, SaveUnfull: unfull})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"lru", "tenure", Belady, Infinite} {
			rows, err := Run(t.Context(), trace, Options{Policies: []string{name}, Capacities: []int{9}})
			if err != nil {
				t.Fatal(err)
			}
			got := rows[0]
			got.Policy, got.CapacityBlocks, got.Requests, got.OverallHitRate, got.OverallComputeRate = "", 0, 0, 0, 0
			if !same(&got, &want) {
				t.Errorf("%s, partial ones %v: %+v, want %+v", name, unfull, got, want)
			}
		}
	}
}
