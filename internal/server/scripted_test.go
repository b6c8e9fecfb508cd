package server

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/server/hint"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const (
	scriptSize   = 16 << 10
	scriptTokens = tiertest.ChunkTokens

	diskTime   = 10 * time.Millisecond // of one read
	remoteTime = 30 * time.Millisecond
	slowTime   = time.Second
)

var scriptSpace = key.Space{Model: "m", World: 1, DType: "bf16", ChunkTokens: scriptTokens, Method: key.Given}

// script is a chain and how the tiers behave about it, chunk by chunk.
type script struct {
	// at says where chunk i is: c DRAM, d disk, r remote, b disk and remote, u
	// remote but the index does not know it, . nowhere.
	at string
	// do says what the tiers below do when asked for chunk i (nothing special
	// where it is short): x fail, l have lost it, z find it corrupt, o be off,
	// n say there is no room, h hang until the context ends, s take
	// slowTime, g wait for the gate.
	// In capitals both tiers do so, else only the first that is asked.
	do string

	find error // the remote tier says this when it is asked what else it has
	off  bool  // the remote tier is switched off

	last   uint32 // tokens of the last chunk; 0 = all
	limits ledger.Limits
	loads  [tier.Places]tier.Limit
	o      Prefetch
	// forget deletes chunk i from every tier after the match, before any load.
	forget []int
	pushes bool
	gate   chan struct{} // g in do: wait until it is closed, whatever the context says
	// fault, if not nil, comes before all that: what it says true to is done.
	fault  func(tierfault.Call) (tierfault.Fault, bool)
	memory *budget.Budget // what the session costs; nil: it is not counted
}

// stage is the reader of a session over a store over scripted tiers, without a
// client: its replies and pushes end in a socket without a reader.
type stage struct {
	*reader
	t        testing.TB
	s        *script
	chain    *key.Chain
	arena    *arena.Arena
	hot      *cpu.Tier
	below    [tier.Places]*tiertest.Memory
	space    uint32
	peer     *pipe.Conn // the client's end
	first    []byte     // body of the newest reply to a prefetch
	end      func()
	after    []func()  // to be called when the play is over
	others   []*reader // sessions besides
	requests uint64
}

// hook makes one of the tiers below do as the script says.
func (g *stage) hook(p tier.Place, took time.Duration) tierfault.Hook {
	return func(c tierfault.Call) tierfault.Fault {
		if g.s.fault != nil {
			if f, ok := g.s.fault(c); ok {
				return f
			}
		}
		if c.Op != tierfault.Get && c.Op != tierfault.Put {
			return tierfault.Fault{}
		}
		i := 0
		for i < g.chain.Len() && g.chain.Hashes[i] != c.Keys[0].Hash {
			i++
		}
		if c.Op == tierfault.Put {
			if i < len(g.s.at) && !g.holds(p, i) {
				return tierfault.Fault{Err: tier.ErrTooLarge} // it is not offered again
			}
			return tierfault.Fault{}
		}
		f := tierfault.Fault{Delay: took}
		if i >= len(g.s.do) {
			return f
		}
		do := g.s.do[i]
		if p == tier.Remote && g.s.at[i] == 'b' && do >= 'a' {
			return f // the disk was asked first
		}
		switch do | 0x20 {
		case 'x':
			f.Err = errors.New("broken")
		case 'l':
			f.Err = tier.ErrNotFound
		case 'z':
			f.Err = tier.ErrCorrupt
		case 'o':
			f.Err = tier.ErrOff
		case 'n':
			f.Err = tier.ErrNoSpace
		case 'h':
			f.Hang = true
		case 's':
			f.Delay = slowTime
		case 'g':
			<-g.s.gate
		}
		return f
	}
}

func (g *stage) holds(p tier.Place, i int) bool {
	switch g.s.at[i] {
	case 'd':
		return p == tier.Disk
	case 'r':
		return p == tier.Remote
	case 'b':
		return p != tier.CPU
	}
	return false
}

// newStage sets the stage. Call strike when the play is over.
func newStage(t testing.TB, s *script) *stage {
	t.Helper()
	g := &stage{t: t, s: s}
	g.chain = tiertest.Chain(7, len(s.at))
	g.chain.Chained = false
	id, err := scriptSpace.ID()
	g.must(err)
	g.chain.Space = id
	if s.last != 0 {
		g.chain.Tokens[len(s.at)-1] = s.last
	}
	const capacity = 4 << 20
	g.arena, err = arena.New(arena.Options{CapacityBytes: capacity})
	g.must(err)
	lru, err := policy.New("lru", capacity)
	g.must(err)
	g.hot = cpu.New(cpu.Options{
		Arena:         g.arena,
		Ledger:        ledger.New(ledger.Options{CapacityBytes: capacity, Entries: capacity >> 10, Policy: lru, Limits: s.limits}),
		HighWatermark: 0.95, LowWatermark: 0.90,
	})
	for p := tier.Disk; p < tier.Places; p++ {
		g.below[p] = tiertest.NewMemory(p.String(), 64<<20)
	}
	so := store.Options{
		Hot: g.hot,
		Below: []store.Below{
			{Place: tier.Disk, Tier: tierfault.Wrap(g.below[tier.Disk], g.hook(tier.Disk, diskTime)), Loads: s.loads[tier.Disk]},
			{Place: tier.Remote, Tier: tierfault.Wrap(g.below[tier.Remote], g.hook(tier.Remote, remoteTime)), Loads: s.loads[tier.Remote]},
		},
		Log: zerolog.Nop(),
	}
	if strings.Contains(s.at, "u") || s.find != nil || s.off {
		so.Below[1].Tier = &sharedTier{Tier: so.Below[1].Tier, memory: g.below[tier.Remote], find: s.find, off: s.off}
	}
	st := store.New(so)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel) // of a test that fails
	ended := make(chan error, 1)
	go func() { ended <- st.Run(ctx) }()
	g.end = func() {
		st.Loader.Wait()
		cancel()
		g.must(<-ended)
	}
	g.open(st)
	g.fill(st)
	return g
}

// open makes the session.
func (g *stage) open(st *store.Store) {
	g.s.o.Policy = cmp.Or(g.s.o.Policy, wire.PolicyTimeout)
	g.s.o.Deadline = cmp.Or(g.s.o.Deadline, time.Minute)
	g.s.o.WindowBytes = cmp.Or(g.s.o.WindowBytes, 1<<20)
	srv := New(Options{
		Store: st, Arena: g.arena, Log: zerolog.Nop(), Events: index.NewLog(7, index.LogOptions{}),
		Settings: Settings{
			LeaseMaxAge: time.Hour, PinMaxAge: time.Hour, Prefetch: g.s.o, ChunkTokens: scriptTokens, Method: "sha256",
			Retain: hint.ClaimLimits{TotalBytes: 1 << 40, UserBytes: 1 << 40, Duration: time.Hour},
		},
	})
	g.reader = g.connect(srv)
}

// connect makes a session with the space open.
func (g *stage) connect(srv *Server) *reader {
	uc := g.socket()
	conn, err := wire.NewConn(uc)
	g.must(err)
	tenant, _, err := srv.users.enter(budget.Holder{}, true)
	g.must(err)
	var account *budget.Account
	if g.s.memory != nil {
		account, err = g.s.memory.Open(uc, budget.Native, quietBytes)
		g.must(err)
	}
	c := newReader(newSession(srv, conn, tenant, account))
	c.session.leaseAge = time.Hour
	c.rights.judge()
	c.session.pushes = g.s.pushes
	ctx, cancel := context.WithCancel(context.Background())
	c.session.ctx = ctx
	g.after = append(g.after, cancel)
	info, err := c.rights.openSpaceOf(scriptSpace)
	g.must(err)
	g.space = info.Handle
	return c
}

// socket is one end of a connection whose other end takes a few frames.
func (g *stage) socket() net.Conn {
	own, peer := pipe.New()
	g.t.Cleanup(func() { peer.Close() })
	g.peer = peer
	return own
}

// fill puts every chunk where the script wants it.
func (g *stage) fill(st *store.Store) {
	ctx := context.Background()
	for i := range g.chain.Len() {
		switch g.s.at[i] {
		case 'u': // as another machine would
			e := tiertest.NewEntry(g.t, g.arena, g.chain, i, scriptSize)
			g.must(g.below[tier.Remote].Put(ctx, e))
			e.Block.Release()
			continue
		case '.':
			continue
		}
		var grant [1]store.Grant
		_, err := st.Filler.Reserve(ctx, store.Reservation{Owner: ledger.Daemon}, g.chain, i, []uint32{scriptSize}, grant[:])
		g.must(err)
		b := grant[0].Ref.Block
		b.SealSum(b.Write(tiertest.Payload(g.chain.Key(i), scriptSize)))
		st.Filler.Commit(g.chain, i, []tier.Ref{grant[0].Ref}, 0, make([]bool, 1))
	}
	g.must(st.Writers.Flush(ctx, false))
	for i := range g.chain.Len() {
		if !strings.ContainsRune("cu.", rune(g.s.at[i])) {
			g.cool(i, i+1)
		}
	}
}

// cool takes chunks from..to out of DRAM.
func (g *stage) cool(from, to int) {
	for i := from; i < to; i++ {
		g.must(g.hot.Delete(context.Background(), tiertest.Keys(g.chain, i, i+1)))
		_, err := g.server.o.Store.Leases.Hold(ledger.Daemon, ledger.IO, g.chain, i, i+1, make([]tier.Ref, 1)) // the index learns it
		g.must(err)
	}
}

func (g *stage) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// spec is the chain as a client sends it.
func (g *stage) spec() wire.Chain {
	ch := wire.Chain{Space: g.space, Form: wire.FormHashes, SaveUnfull: true, Width: 16}
	if n := len(g.chain.Tokens); n > 0 && g.chain.Tokens[n-1] != scriptTokens {
		ch.LastTokens = g.chain.Tokens[n-1]
	}
	for i := range g.chain.Hashes {
		ch.Hashes = append(ch.Hashes, g.chain.Hashes[i][:]...)
	}
	return ch
}

// nextID is another one for each request.
func (g *stage) nextID() uint64 {
	g.requests++
	return g.requests
}

// send has the session handle one request, as its reader would, and returns
// the body of the reply if it came at once and is still here.
func (g *stage) send(op wire.Op, m wire.Message) []byte {
	g.t.Helper()
	start, body := len(g.replies), m.Append(nil)
	g.must(g.handle(wire.Header{Op: op, BodyBytes: uint32(len(body)), ID: g.nextID()}, body))
	if len(g.replies) <= start {
		return nil
	}
	return g.replies[start+wire.HeaderBytes:]
}

// prefetch asks for the chain and returns the job.
func (g *stage) prefetch(req *wire.PrefetchRequest) *job {
	g.t.Helper()
	if req.Chain.Hashes == nil && req.Chain.Form != wire.FormRef {
		req.Chain = g.spec()
	}
	before := g.server.ids.Load()
	g.first = bytes.Clone(g.send(wire.OpPrefetch, req))
	var frames [16 << 10]byte
	if n, _ := g.peer.TryRead(frames[:]); g.first == nil && n > wire.HeaderBytes {
		h := wire.DecodeHeader(frames[:])
		g.first = bytes.Clone(frames[wire.HeaderBytes:][:h.BodyBytes])
	}
	j, err := g.session.job(before + 1)
	g.must(err)
	return j
}

// done waits until the job is.
func (g *stage) done(j *job) {
	if j.loads && j.whole == nil {
		j.await(context.Background(), math.MaxUint64)
	}
}

// strike gives everything back and checks that nothing is left of anything.
func (g *stage) strike() {
	g.t.Helper()
	for _, f := range g.after {
		f()
	}
	for _, c := range append(g.others, g.reader) {
		c.session.close()
		g.must(c.session.conn.Close())
	}
	g.end()
	l, a := g.hot.Ledger().Stats(), g.arena.Stats()
	if l.ProtectedBytes != 0 || l.Filling != 0 || l.LeavingBytes != 0 || l.Owners != 0 {
		g.t.Errorf("something is still held: %+v", l)
	}
	if a.Blocks != int64(l.Entries) || a.UsedBytes != l.UsedBytes {
		g.t.Errorf("%d blocks with %d bytes for %d entries with %d bytes", a.Blocks, a.UsedBytes, l.Entries, l.UsedBytes)
	}
	g.must(g.hot.Delete(context.Background(), tiertest.Keys(g.chain, 0, g.chain.Len())))
	g.must(g.arena.Close())
}

// cached is where every chunk is in DRAM: 1 there, 0 not.
func (g *stage) cached() string {
	var s strings.Builder
	for i := range g.chain.Len() {
		if g.hot.Has(g.chain.Key(i)) {
			s.WriteByte('1')
		} else {
			s.WriteByte('0')
		}
	}
	return s.String()
}

// checkBytes checks every byte under the lease.
func (g *stage) checkBytes(j *job) {
	g.t.Helper()
	j.mu.Lock()
	refs := append([]tier.Ref(nil), j.mu.refs...)
	j.mu.Unlock()
	for i, r := range refs {
		if err := tiertest.CheckPayload(g.chain.Key(i), r.Block.Bytes()); err != nil {
			g.t.Error(err)
		}
	}
}

// play runs f on a stage, in a bubble of its own.
func play(t *testing.T, s script, f func(*testing.T, *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t, &s)
		f(t, g)
		g.strike()
	})
}

// deleteUnderWay deletes chunks as soon as a load has begun.
func (g *stage) deleteUnderWay(chunks []int) {
	go func() {
		time.Sleep(diskTime / 2)
		for _, i := range chunks {
			if _, err := g.server.o.Store.Remover.Delete(context.Background(), tiertest.Keys(g.chain, i, i+1)); err != nil {
				g.t.Error(err)
			}
		}
	}()
}
