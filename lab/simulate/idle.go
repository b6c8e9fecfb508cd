package simulate

import (
	"cmp"
	"math"
	"slices"

	"github.com/kvstored/kvstored/policy"
)

// idle is what clients say between two requests: that no prompt will go on from
// the last one, that a session is over, or for how long it pauses. What only
// that prompt, or such a session, asked for goes first: that of the latest to
// come back before the others, each from its tail.
type idle struct {
	*tree
	trace  *Trace
	said   Sessions
	next   []int      // of each request, the next one of its session; 0 = none
	owner  []int32    // of each block, the session that asked for it; several = more than one
	own    [][]uint32 // of each session, the blocks that it was the first to ask for
	left   []int      // of each session, how many of own may be resident
	quiet  []quiet    // the latest to come back first
	waking []waking   // the next one first
	dead   []uint32   // blocks that clients are done with, the next one to go first
}

// quiet is a session between two requests.
type quiet struct {
	due     int64 // millis of the trace when it is said to come back
	session int
}

// waking is a time at which the missing blocks of a session's prompt come back.
type waking struct {
	at      int64
	request int // the last one
}

const (
	several = -1
	over    = math.MaxInt64 // due, of a session that is over
)

func newIdle(t *tree, trace *Trace, o *Options) *idle {
	p := &idle{
		tree: t, trace: trace, said: o.Sessions, next: make([]int, len(trace.requests)),
		owner: make([]int32, trace.Distinct()),
	}
	last := make(map[int]int)
	for i, r := range trace.requests {
		if before, known := last[r.session]; known {
			p.next[before] = i
		}
		last[r.session] = i
	}
	most := 0
	for s := range last {
		most = max(most, s)
	}
	p.own, p.left = make([][]uint32, most+1), make([]int, most+1)
	return p
}

// arrive ends the silence of the session whose request comes, and first brings
// back the prompts that were due before.
func (p *idle) arrive(turn int, blocks []uint32) {
	if p.said == Turns {
		return
	}
	r := p.trace.requests[turn]
	for len(p.waking) > 0 && p.waking[0].at <= r.millis {
		w := p.waking[0]
		p.waking = p.waking[1:]
		p.wake(w.request)
	}
	p.quiet = slices.DeleteFunc(p.quiet, func(q quiet) bool { return q.session == r.session })
	p.waking = slices.DeleteFunc(p.waking, func(w waking) bool { return p.trace.requests[w.request].session == r.session })
	for _, b := range blocks {
		switch p.owner[b] {
		case 0:
			p.owner[b] = int32(r.session)
			p.own[r.session] = append(p.own[r.session], b)
		case int32(r.session), several:
		default:
			p.owner[b] = several
		}
	}
}

// leave is what the client says after its request.
func (p *idle) leave(turn int) {
	if p.said == Turns {
		p.bury(turn)
		return
	}
	r := p.trace.requests[turn]
	due := int64(over)
	if after := p.next[turn]; after != 0 {
		if p.said != Pauses {
			return
		}
		expected := expect(p.trace.requests[after].millis-r.millis, turn)
		due = r.millis + expected
		p.waking = insert(p.waking, waking{r.millis + expected/2, turn}, func(a, b waking) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.request, b.request))
		})
	}
	p.left[r.session] = len(p.own[r.session])
	p.quiet = insert(p.quiet, quiet{due, r.session}, func(a, b quiet) int {
		return cmp.Or(cmp.Compare(b.due, a.due), cmp.Compare(a.session, b.session))
	})
}

// bury says what no later prompt goes on with.
func (p *idle) bury(turn int) {
	next := p.trace.nextUse()
	for i := p.trace.requests[turn].end - 1; i >= p.trace.start(turn) && next[i] == never; i-- {
		p.dead = append(p.dead, p.trace.blocks[i])
	}
}

// wanted is how many blocks of a request, from the first on, clients are not
// done with. The others are stored where there is room, and displace nothing.
func (t *tree) wanted(at int, blocks []uint32) int {
	if t.idle == nil || t.idle.said != Turns {
		return len(blocks)
	}
	next, n := t.idle.trace.nextUse(), 0
	for n < len(blocks) && next[at+n] != never {
		n++
	}
	return n
}

// insert puts x into a sorted list.
func insert[T any](list []T, x T, compare func(a, b T) int) []T {
	i, _ := slices.BinarySearchFunc(list, x, compare)
	return slices.Insert(list, i, x)
}

// expect is what a client takes a pause for, wrong by a factor between a half
// and two that depends on the request alone.
func expect(pause int64, turn int) int64 {
	h := (uint64(turn) + 1) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	unit := float64((h^h>>32)>>11) / (1 << 53)
	return int64(float64(pause) * math.Exp2(2*unit-1))
}

// victim returns the next block to go of the sessions that are due later than
// a time.
func (p *idle) victim(due int64) (b uint32, found bool) {
	for ; len(p.dead) > 0; p.dead = p.dead[1:] {
		if p.resident[p.dead[0]] {
			return p.dead[0], true
		}
	}
	for at := 0; at < len(p.quiet) && p.quiet[at].due > due; at++ {
		s := p.quiet[at].session
		for ; p.left[s] > 0; p.left[s]-- {
			if b := p.own[s][p.left[s]-1]; p.resident[b] && p.owner[b] == int32(s) {
				return b, true
			}
		}
	}
	return 0, false
}

// wake brings back the missing blocks of a request's prompt, as far as the room
// of sessions that are due later goes.
func (p *idle) wake(turn int) {
	session, start := p.trace.requests[turn].session, p.trace.start(turn)
	at := slices.IndexFunc(p.quiet, func(q quiet) bool { return q.session == session })
	due := p.quiet[at].due
	last := policy.ID(0)
	for i, b := range p.trace.blocks[start:p.trace.requests[turn].end] {
		if p.resident[b] {
			continue
		}
		if p.n >= p.capacity {
			v, found := p.victim(due)
			if !found {
				break
			}
			p.policy.Remove(policy.ID(v))
			p.evicted(v)
		}
		p.now = start + i
		p.add(b)
		p.adopt(b)
		last = policy.ID(b) + 1
	}
	p.left[session] = len(p.own[session])
	if last > 0 {
		p.policy.Allow(last - 1)
	}
}
