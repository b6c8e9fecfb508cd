package whatif

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
)

// asked is a prompt that a client asks for.
type asked struct {
	space  byte
	ids    []uint64 // of its chunks
	chunk  int      // tokens of one
	tokens int
	millis int64 // since the start
}

// record is the sample of a daemon with such tiers that clients ask for prompts. It is for
// a bubble.
func record(t *testing.T, tiers explain.Tiers, chunks int, prompts []asked) *explain.Sample {
	t.Helper()
	tokens := uint64(0)
	r := explain.NewRecorder(explain.RecorderOptions{
		Tiers: func() explain.Tiers { return tiers }, Hits: func() (asked, hit uint64) { return tokens, 0 },
		Chunks: chunks,
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	began := time.Now()
	for i, p := range prompts {
		if wait := time.Until(began.Add(time.Duration(p.millis) * time.Millisecond)); wait > 0 || i%16 == 0 {
			time.Sleep(max(wait, time.Second))
		}
		c := &key.Chain{Space: key.SpaceID{p.space}}
		left := p.tokens
		for _, id := range p.ids {
			h := key.Hash{15: 1}
			binary.LittleEndian.PutUint64(h[:], id)
			c.Hashes, c.Tokens = append(c.Hashes, h), append(c.Tokens, uint32(min(left, p.chunk)))
			left -= p.chunk
		}
		r.Asked(c)
		tokens += uint64(p.tokens)
	}
	time.Sleep(time.Second)
	s := r.Sample()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return s
}

// whole are prompts of whole chunks of 256 tokens, each of as many ids from id<<20 on.
func whole(ids []uint64, chunks func(id uint64) int) (out []asked) {
	for _, id := range ids {
		p := asked{chunk: 256}
		for i := range chunks(id) {
			p.ids = append(p.ids, id<<20+uint64(i)+1)
		}
		p.tokens = 256 * len(p.ids)
		out = append(out, p)
	}
	return out
}

// playAll plays a sample.
func playAll(t *testing.T, s *explain.Sample, depth float64) *Report {
	t.Helper()
	r, err := Play(t.Context(), s, depth, func(*Row) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestMeasured: only prompts since the measurement began count, and stand beside it.
func TestMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := explain.Tiers{DRAM: explain.Tier{Bytes: 1 << 30, Chunks: 1000, Policy: "lru"}, Write: "auto"}
		s := record(t, now, 0, whole([]uint64{1, 2, 3, 4, 1, 2, 3, 4}, func(uint64) int { return 10 }))
		s.Measured = explain.Measured{Since: s.Since, AskedTokens: 400, HitTokens: 100}
		for i := range s.Prompts {
			s.Prompts[i].Millis += int64(i / 4) // the second half came later
		}
		r := playAll(t, s, 30_000)
		if r.Requests != 4 || r.now().Hit != 1 || r.Measured != 0.25 || r.MeasuredTokens != 400 {
			t.Errorf("%d requests hit %v, measured %v of %d", r.Requests, r.now().Hit, r.Measured, r.MeasuredTokens)
		}
	})
}
