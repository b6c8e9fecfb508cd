package feed

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed/feedtest"
	"github.com/kvstored/kvstored/router/index"
)

func TestNumbers(t *testing.T) {
	r := newRig(t, Options{})
	r.live(7, stored(nil, 1, 2))
	r.want(2, 1, 2, 3)
	if v := r.live(9, stored(2, 3)); v != Gap {
		t.Errorf("a missing number: %d", v)
	}
	r.want(2, 1, 2, 3)
	r.p.Rewind(9, true)
	for seq, b := range map[uint64][]byte{7: batch(stored(nil, 1, 2))} {
		if v, _ := r.p.Replay(seq, b); v != Duplicate {
			t.Errorf("the last batch again: %d", v)
		}
	}
	for seq := uint64(8); seq < 12; seq++ {
		if v, err := r.p.Replay(seq, batch(stored(int(seq)-6, int(seq)-5))); v != Applied || err != nil {
			t.Fatal(v, err)
		}
	}
	r.want(6, 1, 2, 3, 4, 5, 6)
	for _, step := range []struct {
		seq  uint64
		want Verdict
	}{{10, Duplicate}, {11, Duplicate}, {12, Applied}, {3, Restart}, {12, Restart}, {13, Applied}} {
		if v := r.live(step.seq, removed(99)); v != step.want {
			t.Errorf("number %d: %d, want %d", step.seq, v, step.want)
		}
	}
	r.p.Reset()
	r.want(0, 1, 2)
}

// A publisher that began anew has other batches under the old numbers.
func TestReplayOfAnotherLife(t *testing.T) {
	r := newRig(t, Options{})
	r.live(0, stored(nil, 1))
	if v, _ := r.p.Replay(0, batch(stored(nil, 2))); v != Restart {
		t.Errorf("another batch 0: %d", v)
	}
}

func TestParentsComeLater(t *testing.T) {
	r := newRig(t, Options{WaitingEvents: 3, WaitingBlocks: 10})
	r.live(0, stored(4, 5, 6), stored(2, 3, 4))
	r.want(0, 1, 2, 3)
	r.live(1, removed(6))
	r.live(2, stored(nil, 1, 2))
	r.want(5, 1, 2, 3, 4, 5, 6)
	if s, _ := r.p.Stats(); s.Waiting != 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
	for i := range 10 { // more than may wait
		r.live(uint64(3+i), stored(100+i, 200+i))
	}
	if s, _ := r.p.Stats(); s.Waiting != 3 || s.Dropped != 7 {
		t.Errorf("%+v", s)
	}
	r.live(13, stored(nil, 109))
	r.want(2, 109, 209)
	r.now = r.now.Add(59 * time.Second)
	r.p.Tick()
	if s, _ := r.p.Stats(); s.Waiting != 2 {
		t.Errorf("after 59 s: %+v", s)
	}
	r.now = r.now.Add(time.Second)
	r.p.Tick()
	if s, _ := r.p.Stats(); s.Waiting != 0 || s.Dropped != 9 {
		t.Errorf("after 60 s: %+v", s)
	}
}

func TestWhatForgets(t *testing.T) {
	for name, do := range map[string]func(*rig){
		"cleared":  func(r *rig) { r.live(1, list{"AllBlocksCleared"}) },
		"restart":  func(r *rig) { r.p.Reset() },
		"a grace":  func(r *rig) { r.p.Lost(); r.now = r.now.Add(30 * time.Second); r.p.Tick() },
		"garbage":  func(r *rig) { _, _ = r.p.Live(1, []byte("no batch")) },
		"removals": func(r *rig) { r.live(1, removed(1, 2)) },
	} {
		r := newRig(t, Options{})
		r.live(0, stored(nil, 1, 2), stored(77, 78))
		r.p.Lost()
		r.now = r.now.Add(29 * time.Second)
		r.p.Tick()
		r.p.Connected()
		r.want(2, 1, 2)
		do(r)
		if got := r.depth(1, 2); got != 0 {
			t.Errorf("%s: %d blocks are still known", name, got)
		}
	}
}

// A publisher of garbage is heard again later, each time after longer.
func TestGarbage(t *testing.T) {
	r := newRig(t, Options{})
	for _, deaf := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		if _, err := r.p.Live(5, []byte{0xc1}); !errors.Is(err, event.ErrSyntax) {
			t.Error(err)
		}
		r.now = r.now.Add(deaf - 1)
		if _, err := r.p.Live(6, batch(stored(nil, 1))); !errors.Is(err, ErrIgnore) {
			t.Errorf("before %v: %v", deaf, err)
		}
		r.now = r.now.Add(1)
	}
	r.live(9, stored(nil, 1))
	r.want(1, 1)
}

// An event of a medium that is not known is counted, and the rest of its batch applied.
func TestUnknownMedium(t *testing.T) {
	r := newRig(t, Options{})
	r.live(0, stored(nil, 1), list{"BlockRemoved", list{1}, "TAPE"}, stored(1, 2))
	r.want(2, 1, 2)
	if s, _ := r.p.Stats(); s.Passed != 1 || s.Garbage != 0 || s.Refused != 0 {
		t.Errorf("%+v", s)
	}
}

// The likeliest wrong events, each with an error of its own.
func TestWrongEvents(t *testing.T) {
	many := list{}
	for range 65535 {
		many = append(many, 1)
	}
	for name, tt := range map[string]struct {
		in   []byte
		want error
	}{
		"block size 0":     {batch(list{"BlockStored", list{1}, nil, list{1, 1}, 0}), event.ErrBlockTokens},
		"other block size": {batch(list{"BlockStored", list{1}, nil, list{1}, 1}), index.ErrBlockTokens},
		"other rank":       {pack(nil, list{1, list{removed(1)}, 3}), ErrRank},
		"too many hashes":  {batch(list{"BlockRemoved", many, "GPU"}), event.ErrTooManyHashes},
	} {
		r := newRig(t, Options{Limits: event.Limits{Hashes: 60000}})
		if _, err := r.p.Live(0, tt.in); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, m := range []Model{{}, {Name: "m"}, {Name: "m", BlockTokens: -1}, {Name: "m", ChunkTokens: 1 << 17}, {Name: string(make([]byte, 2000)), BlockTokens: 1}} {
		if err := m.Check(); !errors.Is(err, ErrModel) {
			t.Errorf("%.20q: %v", m.Name, err)
		}
	}
}

// Random batches, of which some are lost, come twice or come from a publisher that
// has begun anew, leave what the publisher has; nothing more is claimed meanwhile.
func TestRandomNumbers(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	r := newRig(t, Options{})
	var kept [][]byte // of this life
	has := map[int]bool{}
	send := func(seq int) {
		v, _ := r.p.Live(uint64(seq), kept[seq])
		switch v {
		case Restart:
			r.p.Reset()
		case Gap:
			r.p.Rewind(uint64(seq), true)
		default:
			return
		}
		from := 0
		if next, begun := r.p.Next(); begun {
			from = int(next)
		}
		for i := max(from-1, 0); i < len(kept); i++ {
			if v, _ := r.p.Replay(uint64(i), kept[i]); v == Restart {
				r.p.Reset()
				i = -1
			}
		}
	}
	r.p.Expect(0)
	for step := range 5000 {
		switch n := rnd.IntN(1000); {
		case n == 0: // a new life, with the same blocks, empty
			kept, has = nil, map[int]bool{}
			kept = append(kept, batch(list{"AllBlocksCleared"}, removed(1_000_000+step)))
			send(0)
			continue
		case n < 400:
			h := 1 + rnd.IntN(50)
			kept, has[h] = append(kept, batch(stored(nil, h), removed(1_000_000+step))), true
		default:
			h := 1 + rnd.IntN(50)
			kept = append(kept, batch(removed(h, 1_000_000+step)))
			delete(has, h)
		}
		seq := len(kept) - 1
		if rnd.IntN(10) == 0 {
			continue // lost
		}
		send(seq)
		for h := 1; h <= 50; h++ {
			if got := r.depth(h) == 1; got != has[h] {
				t.Fatalf("step %d, block %d: known %t, want %t", step, h, got, has[h])
			}
		}
	}
}

// The end of a connection is a warning, once.
func TestLostIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, log, sessions := newRig(t, Options{}).p, new(logtest.Book), 0
		p.Lost()
		ctx, cancel := context.WithCancel(t.Context())
		_ = again(ctx, p, zerolog.New(log).Level(zerolog.WarnLevel), "there", func(context.Context) error {
			switch sessions++; sessions {
			case 2, 5, 8:
				p.Connected()
			}
			if sessions == 8 {
				cancel() // which nothing says
			}
			return errLost
		})
		if n := strings.Count(log.String(), "a publisher of events is not there"); n != 2 {
			t.Errorf("%d lines of two ends:\n%s", n, log)
		}
	})
}

// An engine that speculates as EAGLE does tells of pairs of tokens. A model that says so has
// its blocks, and any other none of them.
func TestPairs(t *testing.T) {
	tokens := feedtest.Tokens(1, 2, 3)
	of := func(parent any, from int, hashes ...any) list {
		var pairs list
		for i := range len(hashes) * blockTokens {
			at := from*blockTokens + i
			pairs = append(pairs, list{int(tokens[at]), int(tokens[at+1])})
		}
		return list{"BlockStored", list(hashes), parent, pairs, blockTokens}
	}
	for _, eagle := range []bool{true, false} {
		r := newRig(t, Options{})
		if eagle {
			r.m.BlockHash = DynamoEagle
		}
		r.live(0, of(10, 1, 11), of(nil, 0, 10)) // the second block waits for the first
		r.live(1, stored(nil, 1, 2, 3))
		if s, _ := r.p.Stats(); eagle != (s.Passed == 1) || eagle != (s.Blocks == 2) {
			t.Errorf("eagle %t: %+v", eagle, s)
		}
		if !eagle {
			continue
		}
		r.want(2, 1, 2, 3)
		r.want(1, 1, 2) // the token behind the second block is not known
		r.want(1, 1, 2, 4)
		r.live(2, removed(10))
		r.want(0, 1, 2, 3)
	}
}
