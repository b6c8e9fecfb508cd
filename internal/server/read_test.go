package server_test

import (
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// reads tells of prompts that were read.
func (c *raw) reads(ps ...*key.Chain) {
	c.t.Helper()
	var m wire.ReadRequest
	for _, p := range ps {
		ch := c.chain(p)
		m.Reads = m.Reads.Add(&ch)
	}
	c.do(wire.OpRead, &m, wire.EmptyReply{})
}

// booked is what the counters say of requests for prompts, and how many uses a policy saw.
func booked(r *rig) (s server.Stats, uses int) {
	all := r.server.Stats()
	return server.Stats{
		Prefetches: all.Prefetches, AskedChunks: all.AskedChunks, AskedTokens: all.AskedTokens,
		MatchedChunks: all.MatchedChunks, MatchedTokens: all.MatchedTokens, HitChunks: all.HitChunks, HitTokens: all.HitTokens,
		Models: all.Models, LeasesLive: all.LeasesLive,
	}, r.reuses()
}

// TestReadIsAPrefetch: reads that a client tells of count as prefetches that were released.
func TestReadIsAPrefetch(t *testing.T) {
	long, behind, alike := chain(1, 5), chain(1, 5), chain(2, 1)
	behind.Skip = 3
	long.Tokens[4] = 3 // of a chunk that is not full
	behind.Tokens[4] = 3
	asked := []*key.Chain{long, alike, behind, alike}
	var want, got server.Stats
	var uses, used int
	t.Run("prefetches", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := learning(t)
			r.store(long, 0, 5)
			r.store(alike, 0, 1)
			r.prefetchEach(r.greet(0), asked...)
			want, uses = booked(r)
		})
	})
	t.Run("reads", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := learning(t)
			r.store(long, 0, 5)
			r.store(alike, 0, 1)
			r.greet(0).reads(asked...)
			got, used = booked(r)
		})
	})
	if !reflect.DeepEqual(got, want) || used != uses || uses == 0 {
		t.Errorf("told of: %+v and %d uses, want those of prefetches: %+v and %d", got, used, want, uses)
	}
}

// prefetchEach leases each prompt and releases it.
func (r *rig) prefetchEach(c *raw, ps ...*key.Chain) {
	r.t.Helper()
	for _, p := range ps {
		m := c.prefetch(p)
		c.do(wire.OpRelease, &wire.IDRequest{ID: m.Job}, new(wire.ReleaseReply))
	}
}

// TestReadKeepsAlive: a chunk that is only read is younger than one that is not.
func TestReadKeepsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{lone: true, capacity: mib})
		read, other := chain(1, 1), chain(2, 1)
		r.store(read, 0, 1)
		r.store(other, 0, 1)
		c := r.greet(0)
		for i := range uint64(2 * mib / size) {
			c.reads(read)
			r.store(chain(10+i, 1), 0, 1)
		}
		if c.prefetch(read).Match.Total.Chunks != 1 || c.prefetch(other).Match.Total.Chunks != 0 {
			t.Error("a chunk that was read has gone, or one that was not has stayed")
		}
	})
}

// TestReadOfWhatIsNotThere: claims beyond what is stored count nothing.
func TestReadOfWhatIsNotThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 8)
		r.store(p, 0, 2)
		r.greet(0).reads(p, chain(2, 3))
		s := r.server.Stats()
		if s.AskedChunks != 2 || s.MatchedChunks != 2 || s.HitChunks[0] != 2 || s.Models[0].HitBytes != 2*size || s.Models[0].AskedTokens != 2*tokens {
			t.Errorf("%+v", s)
		}
	})
}

// TestReadOnDiskCounts: what has left DRAM since is a hit all the same, and used on disk.
func TestReadOnDiskCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 3)
		r.store(p, 0, 1)
		r.onDisk(p, 1, 3)
		r.greet(0).reads(p)
		if s := r.server.Stats(); s.HitChunks[0] != 3 || s.HitTokens[0] != 3*tokens || s.Models[0].HitBytes != size {
			t.Errorf("%+v", s)
		}
	})
}

// TestReadEndsWithDaemon: a request that tells of many reads does not keep the daemon from
// ending.
func TestReadEndsWithDaemon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, r := 0, new(rig)
		r = newRig(t, options{Options: server.Options{Asked: func(*key.Chain) {
			asked++
			r.cancel()
		}}})
		c := r.greet(0)
		var m wire.ReadRequest
		for i := range uint64(3) {
			ch := c.chain(chain(1+i, 1))
			m.Reads = m.Reads.Add(&ch)
		}
		c.send(wire.OpRead, &m)
		c.ended()
		if r.stop(); asked != 1 {
			t.Errorf("%d reads are counted, the daemon ends at the first", asked)
		}
	})
}

func TestReadRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		p := chain(1, 2)
		r.store(p, 0, 2)
		c := r.greet(0)
		good := c.chain(p)
		one := func(ch wire.Chain) *wire.ReadRequest {
			return &wire.ReadRequest{Reads: wire.Reads(nil).Add(&good).Add(&ch)}
		}
		elsewhere, beyond, twice, many := good, good, good, wire.ReadRequest{}
		elsewhere.Space, beyond.Skip = 99, 3
		twice.Hashes = append(append([]byte(nil), good.Hashes[:16]...), good.Hashes[:16]...)
		for range wire.MaxReads + 1 {
			many.Reads = many.Reads.Add(&good)
		}
		c.refused(wire.CodeUnknownSpace, wire.OpRead, one(elsewhere))
		c.refused(wire.CodeBadRequest, wire.OpRead, one(wire.Chain{Form: wire.FormNone}))
		c.refused(wire.CodeUnknownChain, wire.OpRead, one(wire.Chain{Form: wire.FormKept, ID: 5}))
		c.refused(wire.CodeUnknownJob, wire.OpRead, one(refChain(77)))
		c.refused(wire.CodeBadRequest, wire.OpRead, one(beyond))
		c.refused(wire.CodeBadRequest, wire.OpRead, one(twice))
		c.refused(wire.CodeBadRequest, wire.OpRead, bodyOf("\x02\x00\x00\x00\x00\x00\x00\x00"))
		if before := r.server.Stats().HitChunks[0]; before != 6*2 {
			t.Errorf("%d hits, want those of the chains before the wrong ones", before)
		}
		c.refused(wire.CodeBadRequest, wire.OpRead, &many)
		if n := r.server.Stats().HitChunks[0]; n != 6*2 {
			t.Errorf("a request that is too long counted %d", n)
		}
		c.reads() // of nothing
		c.ping()
	})
}
