package server

import (
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/prefetch"
	"github.com/kvstored/kvstored/tier"
)

// lease holds the chunks of the match that are in DRAM, and returns how many.
func (j *job) lease(m *stack.Match) (int, error) {
	held := make([][]tier.Ref, j.ranks())
	n, err := j.leaseRanks(held, m.Hot)
	if err != nil { // what the first ranks took, the others lack: once more with equal shares
		all := 0
		for _, h := range held {
			all += len(h)
		}
		j.trim(held, all/len(held))
		n, _ = j.leaseRanks(held, all/len(held))
	}
	j.trim(held, n)
	for i := range n {
		for r := range held {
			j.add(chunk{held[r][i], tier.CPU})
		}
	}
	return n, err
}

// leaseRanks holds the first n chunks for each rank as far as they are not
// held, and returns how many are held for all.
func (j *job) leaseRanks(held [][]tier.Ref, n int) (int, error) {
	var err error
	for r := range held {
		have := len(held[r])
		if have < n {
			more := make([]tier.Ref, n-have)
			from := j.skip() + have
			got, herr := j.stack.Hold(j.session.owner, ledger.Lease, &j.chains[r], from, from+len(more), more)
			held[r] = append(held[r], more[:got]...)
			if err == nil {
				err = herr
			}
		}
		n = min(n, len(held[r]))
	}
	return n, err
}

// holdSingles holds the pieces behind the match that are there all the same, and returns
// a bit for each. Where the match is still to be loaded, the owner's budget of leases is left
// to it, and those in DRAM are passed over.
func (j *job) holdSingles(m *stack.Match) wire.U32s {
	search := j.search
	if !j.mu.done {
		search &^= tier.Of(tier.CPU)
	}
	bits, used := make([]uint32, (j.ranks()*(j.chain.Len()-j.skip())+31)/32), 0
	for r := range j.chains {
		j.stack.HoldSingles(&j.singles, j.session.owner, &j.chains[r], j.skip()+m.Chunks, search, func(i int) {
			piece := (i-j.skip())*j.ranks() + r
			bits[piece/32] |= 1 << (piece % 32)
			used = max(used, piece/32+1)
		})
	}
	return wire.ViewU32s(bits[:used])
}

// trim releases the chunks held beyond the first n.
func (j *job) trim(held [][]tier.Ref, n int) {
	for r := range held {
		if len(held[r]) > n {
			j.unlease(held[r][n:])
			held[r] = held[r][:n]
		}
	}
}

// add extends the prefix by a piece; called with the mutex held, or before j
// is shared.
func (j *job) add(ch chunk) {
	if len(j.mu.refs)%j.ranks() == 0 {
		j.mu.far = ch.from
	}
	j.mu.far = max(j.mu.far, ch.from)
	j.mu.refs = append(j.mu.refs, ch.ref)
	if len(j.mu.refs)%j.ranks() != 0 {
		return
	}
	tokens := uint64(j.chain.Tokens[j.skip()+j.ready()-1])
	j.mu.tokens += tokens
	j.mu.in[j.mu.far].Chunks++
	j.mu.in[j.mu.far].Tokens += tokens
}

// leased returns chunk i of the prefix, of the first rank, if it is held; the
// caller releases it.
func (j *job) leased(i int) (arena.Block, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if i < 0 || i >= j.ready() || j.whole != nil {
		return arena.Block{}, false
	}
	return j.mu.refs[i*j.ranks()].Block.Retain(), true
}

// end gives the lease back, for good: no push follows. It reports whether the
// job still had it.
func (j *job) end() bool {
	j.mu.Lock()
	j.mu.silent = true
	if j.mu.ended {
		j.mu.Unlock()
		return false
	}
	refs, taken := j.close()
	j.mu.Unlock()
	j.giveBack(refs, taken)
	return true
}

// close ends the lease and returns the pieces it held, and how many were
// taken over from fetch; called with the mutex held.
func (j *job) close() (refs []tier.Ref, taken int) {
	j.mu.ended, j.mu.endedAt = true, j.ready()
	if !j.mu.done {
		j.mu.done, j.mu.err = true, prefetch.ErrCancelled
	}
	if j.mu.expiry != nil {
		j.mu.expiry.Stop()
	}
	refs, j.mu.refs = j.mu.refs, nil
	return refs, j.mu.taken
}

// giveBack releases the pieces that the lease held, and those that came up since.
func (j *job) giveBack(refs []tier.Ref, taken int) {
	j.session.server.count.hit(j.mu.in) // it does not change after the end
	held := uint64(0)
	for i := range refs {
		held += uint64(refs[i].Block.Len())
	}
	j.session.server.model(j.chain.Space).had(&j.mu.in, held)
	j.short.count(j)
	var late []tier.Ref
	j.halt(prefetch.ErrCancelled)
	if fetch := j.fetching(); fetch != nil && j.whole == nil {
		for _, ch := range fetch.Ready(taken, nil) {
			late = append(late, ch.ref)
		}
	}
	bytes := int64(0)
	if len(refs) > 0 {
		bytes = int64(refs[0].Block.Len())
	}
	j.unlease(refs)
	j.unlease(late)
	j.stack.EndSingles(&j.singles)
	for r := range j.chains {
		j.stack.Passed(&j.chains[r], j.skip(), j.skip()+j.chunks(), bytes)
	}
	if !j.over {
		return
	}
	for _, chains := range j.spaces {
		for r := range chains {
			j.stack.MarkCold(&chains[r])
		}
	}
}

// chunks is how many of the first group are ready, or were when the lease ended.
func (j *job) chunks() (n int) {
	for p := range j.mu.in {
		n += j.mu.in[p].Chunks
	}
	return n
}

func (j *job) unlease(refs []tier.Ref) {
	j.stack.Release(j.session.owner, ledger.Lease, refs)
}

// age starts the age of the lease anew. It reports whether the job still has
// its lease.
func (j *job) age() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.ended {
		return false
	}
	if j.mu.expiry == nil {
		j.mu.expiry = time.AfterFunc(j.session.leaseAge, func() { j.session.whileOpen(j.expire) })
	}
	j.rejuvenate()
	return true
}

// rejuvenate is called with the mutex held.
func (j *job) rejuvenate() {
	if j.mu.expiry != nil {
		limit := j.session.leaseAge
		j.mu.until = time.Now().Add(limit)
		j.mu.expiry.Reset(limit)
	}
}

// expire revokes the lease unless it was renewed this very moment.
func (j *job) expire() { j.revokeIf(true, "it was neither released nor renewed in time") }

// revoke ends a lease that its client has not ended, and returns how many
// chunks it held.
func (j *job) revoke(why string) int { return j.revokeIf(false, why) }

// revokeIf is revoke; with overdue for a lease that has grown too old only. One
// that has not will be looked at again: its timer was set when it was renewed.
func (j *job) revokeIf(overdue bool, why string) int {
	j.mu.Lock()
	if j.mu.ended || overdue && time.Now().Before(j.mu.until) {
		j.mu.Unlock()
		return 0
	}
	told := j.mu.told // else tell pushes
	j.mu.revoked = true
	refs, taken := j.close()
	j.mu.Unlock()
	n := len(refs)
	j.giveBack(refs, taken)
	c := j.session
	c.server.count.revoked.Add(1)
	c.server.revoked.log(&c.log, "job", j.id, why)
	if told {
		c.push(j)
	}
	return n
}
