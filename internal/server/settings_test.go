package server

import (
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/access"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/tier"
)

// TestSetEndsWhatIsDenied: a job ends with its lease when its user may not read the
// space any more, and a fill when it may not write it. Others stay.
func TestSetEndsWhatIsDenied(t *testing.T) {
	const uid = 5
	policy := func(rights access.Rights) *access.Policy {
		return access.New(access.Options{Own: 1, Rules: []access.Rule{{UIDs: []uint32{uid}, Match: "*", Rights: rights}}})
	}
	for _, tc := range []struct {
		left      access.Rights
		job, fill bool // are left
	}{
		{access.Read | access.Write, true, true},
		{access.Read, true, false},
		{access.Write, false, true},
		{access.Admin, false, false},
	} {
		play(t, script{at: "cc.."}, func(t *testing.T, g *stage) {
			g.session.uid = uid
			g.server.sessions.add(g.session)
			set := func(rights access.Rights) {
				to := *g.server.settings()
				to.Access = policy(rights)
				g.server.Set(to)
			}
			set(access.Read | access.Write)
			j := g.prefetch(&wire.PrefetchRequest{})
			g.window()
			g.send(wire.OpReserve, &wire.ReserveRequest{Chain: g.spec(), First: 2, Count: 1, Sizes: wire.ViewU32s([]uint32{scriptSize})})
			_, fills := g.session.live()
			if len(fills) != 1 {
				t.Fatalf("%d fills", len(fills))
			}
			set(tc.left)
			f := fills[0]
			j.mu.Lock()
			defer j.mu.Unlock()
			f.mu.Lock()
			defer f.mu.Unlock()
			if j.mu.revoked == tc.job || f.mu.aged == tc.fill {
				t.Errorf("left %s: the job is revoked: %t, the fill: %t", tc.left, j.mu.revoked, f.mu.aged)
			}
		})
	}
}

// TestDeniedBeforeTheReply: a job that a reload ends before its client has the reply
// says so in the reply, and once more when the client knows it, not before.
func TestDeniedBeforeTheReply(t *testing.T) {
	const uid = 5
	play(t, script{at: "cddd", pushes: true}, func(t *testing.T, g *stage) {
		g.session.uid = uid
		set := func(rights access.Rights) {
			to := *g.server.settings()
			to.Access = access.New(access.Options{Own: 1, Rules: []access.Rule{{UIDs: []uint32{uid}, Match: "*", Rights: rights}}})
			g.server.Set(to)
		}
		pushed := func() (n int) {
			var frames [16 << 10]byte
			n, _ = g.peer.TryRead(frames[:])
			return n
		}
		set(access.Read)
		g.rights.judge()
		set(access.Write) // the session is not told: its reader has begun the request
		j, reply, err := g.begin(g.chain, &ask{search: tier.All})
		g.must(err)
		if !reply.State.Done() || reply.State.Code != wire.CodeRevoked || reply.State.Ready.Chunks != 0 {
			t.Errorf("the reply says %+v", reply.State)
		}
		if n := pushed(); n > 0 {
			t.Errorf("%d bytes come before the reply", n)
		}
		j.tell()
		j.run()
		synctest.Wait()
		if pushed() == 0 {
			t.Error("the client is not told once it knows the job")
		}
	})
}
