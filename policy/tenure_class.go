package policy

import (
	"math"
	"math/bits"
)

// Classes and ages. The thresholds were found with blocks of 512 tokens; in
// tokens they hold for any length of a chunk.
const (
	maxCount    = 4
	lengths     = 3
	news        = 3
	plain       = maxCount * 2 * news * lengths // classes without a hint
	classes     = plain * int(hints)
	bins        = 26
	firstBin    = 15 // bin 0 ends at an age of 2^firstBin tokens, each next one √2 later
	shortNew    = 2 * 512
	longNew     = 16 * 512
	shortPrompt = 3 * 512
	longPrompt  = 48 * 512
)

// class is how a chunk was last asked for: how often it has been by then, up
// to four, whether it was the last of the prompt, how many tokens of the
// prompt were new, how many it had, and the client's hint.
func class(count int, last bool, fresh, tokens int, h Hint) uint16 {
	tail := 0
	if last {
		tail = 1
	}
	c := (count-1)*2 + tail
	c = c*news + third(fresh, shortNew, longNew)
	c = c*lengths + third(tokens, shortPrompt, longPrompt)
	return uint16(int(h)*plain + c)
}

func third(n, low, high int) int {
	switch {
	case n <= low:
		return 0
	case n <= high:
		return 1
	}
	return 2
}

// binEnds are the ages in tokens at which the bins end: half octaves from
// 2^firstBin on. The last has no end.
var binEnds = func() (ends [bins]int64) {
	for b := range ends {
		ends[b] = int64(math.Ceil(math.Pow(2, firstBin+float64(b)/2)))
	}
	ends[bins-1] = math.MaxInt64
	return ends
}()

// bin is the bin of an age in tokens.
func bin(age int64) int {
	octave := bits.Len64(uint64(age) >> firstBin)
	if octave == 0 {
		return 0
	}
	b := min(2*octave-1, bins-1)
	if age >= binEnds[b] {
		b++
	}
	return b
}

// observe learns from the tenants of one prompt and gives them their new
// class. A tenant that was unknown is a ghost until it is added.
func (p *tenure) observe(r Request) {
	n := len(p.chain)
	chunk := r.ChunkTokens
	if chunk < 1 {
		chunk = defaultChunk
	}
	tokens := max(r.Tokens, (n-1)*chunk+1)
	p.now += p.span
	p.span = int64(n) * int64(chunk)
	p.floor = ghostTokens / max(chunk, 16)
	known := 0
	for known < n && p.roll.at(p.chain[known]).known() {
		known++
	}
	for j, i := range p.chain {
		h := NoHint
		if j >= r.HintFrom && r.Hint < hints {
			h = r.Hint
		}
		p.use(i, j == n-1, tokens-known*chunk, tokens, h)
	}
	p.requests++
	turned := p.trust.judge(p.span)
	first := p.heed(r.Hint)
	if p.untrained++; first || p.deferred == nil && p.due() {
		p.untrained = 0
		p.train()
	} else if turned {
		p.arrange()
	}
	p.age()
	for _, i := range p.chain {
		p.seat(i, atBack)
	}
	p.bound(2*n + 16)
}

func (p *tenure) Advise(chain []uint64, h Hint, from int) {
	if h >= hints {
		return
	}
	if p.heed(h) {
		p.train()
	}
	for _, hash := range chain[min(max(from, 0), len(chain)):] {
		if i := p.roll.find(hash); i != 0 && p.roll.at(i).known() {
			p.unseat(i)
			t := p.roll.at(i)
			t.class = uint16(h)*plain + t.class%plain
			p.seat(i, byAge)
		}
	}
}

// heed reports whether a hint is the first of its kind: its classes need a rank.
func (p *tenure) heed(h Hint) (first bool) {
	if first = h < hints && h > p.learner.highest; first {
		p.learner.highest = h
	}
	return first
}

// due reports whether there were so many requests since the last training that
// more is worth its while.
func (p *tenure) due() bool { return p.untrained >= max(4, min(256, p.requests/16)) }

// use is one more use of a tenant. It is seated again after the training.
func (p *tenure) use(i uint32, last bool, fresh, tokens int, h Hint) {
	t, count := p.roll.at(i), 1
	if t.known() {
		count = min(t.uses()+1, maxCount)
		p.count(&p.learner.hits, t)
		p.trust.note(t)
		p.unseat(i)
		if t.is(ghostly) {
			p.roll.exorcise(i)
		}
	} else {
		p.roll.known++
		p.watch(i)
	}
	t.mark &^= asked
	t.last = p.now
	t.class = class(count, last, fresh, tokens, h)
	if !t.is(resident) {
		p.roll.haunt(i)
	}
}

// bound forgets the oldest ghosts that are too many, but no more than most,
// so that no call takes long.
func (p *tenure) bound(most int) {
	limit := p.resident + max(p.resident, p.floor)
	for ; p.roll.known > limit && most > 0 && p.roll.ghosts.front != 0; most-- {
		i := p.roll.ghosts.front
		p.roll.exorcise(i)
		p.count(&p.learner.gone, p.roll.at(i))
		p.forget(i)
	}
}
