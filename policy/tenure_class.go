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

// observe learns from the chunks of one prompt and gives them their new
// class. A chunk that was unknown is a ghost until it is added.
func (p *tenure) observe(r Request) {
	n := len(p.chain)
	chunk := r.ChunkTokens
	if chunk < 1 {
		chunk = defaultChunk
	}
	tokens := max(r.Tokens, (n-1)*chunk+1)
	p.now += p.span
	p.span = int64(n) * int64(chunk)
	p.floor = min(ghostTokens/max(chunk, 16), p.most)
	p.roomy = p.roomy || p.resident*chunk >= roomyTokens
	known := 0
	for known < n && p.chunks.At(p.chain[known]).known() {
		known++
	}
	p.fresh, p.tokens = tokens-known*chunk, tokens
	for j, i := range p.chain {
		h := NoHint
		if j >= r.HintFrom && r.Hint < hints {
			h = r.Hint
		}
		p.use(i, j == n-1, p.fresh, tokens, h)
		p.chunks.At(i).setStep(costStep(j*chunk+chunk/2, r.PrefillDepth))
	}
	p.requests++
	p.trust.update(p.span)
	first := p.learner.isNew(r.Hint)
	if p.untrained++; first || p.deferred == nil && p.due() {
		p.untrained = 0
		p.train()
	} else if p.regime() != p.cells.by {
		p.arrange()
	}
	p.age()
	for _, i := range p.chain {
		p.insert(i, atBack)
	}
	p.bound(2*n + 16)
}

// observeBeside gives chunks that the last prompt needs besides the class of its last
// chunk.
func observeBeside(p *tenure, r Request) {
	step := costStep(max(0, r.Tokens-r.ChunkTokens/2), r.PrefillDepth)
	for _, i := range p.chain {
		p.use(i, true, p.fresh, p.tokens, NoHint)
		p.chunks.At(i).setStep(step)
		p.insert(i, atBack)
	}
	p.bound(2*len(p.chain) + 16)
}

func (p *tenure) Advise(chain []uint64, h Hint, from int) {
	if h >= hints {
		return
	}
	if p.learner.isNew(h) {
		p.train()
	}
	for _, hash := range chain[min(max(from, 0), len(chain)):] {
		if i := p.chunks.find(hash); i != 0 && p.chunks.At(i).known() {
			p.takeOut(i)
			t := p.chunks.At(i)
			t.class = uint16(h)*plain + t.class%plain
			p.insert(i, byLast)
		}
	}
}

// isNew notes the kind of a hint, and reports whether it is the first of that
// kind: its classes need a rank.
func (l *learner) isNew(h Hint) (first bool) {
	if first = h < hints && h > l.highest; first {
		l.highest = h
	}
	return first
}

// due reports whether there were enough requests since the last training for
// another.
func (p *tenure) due() bool { return p.untrained >= max(4, min(256, p.requests/16)) }

// use is one more use of a chunk. It is in a cell again after the training.
func (p *tenure) use(i uint32, last bool, fresh, tokens int, h Hint) {
	t, count := p.chunks.At(i), 1
	if t.known() {
		count = min(t.uses()+1, maxCount)
		p.count(&p.learner.hits, t)
		if t.watch != 0 {
			p.trust.seen++
		}
		p.takeOut(i)
		if t.is(ghostly) {
			p.chunks.removeGhost(i)
		}
	} else {
		p.chunks.known++
		p.watch(i)
	}
	t.mark &^= asked
	t.last = p.now
	t.class = class(count, last, fresh, tokens, h)
	if !t.is(resident) {
		p.chunks.addGhost(i)
	}
}

// bound forgets the oldest ghosts that are too many, but no more than most,
// so that no call takes long.
func (p *tenure) bound(most int) {
	limit := p.resident + max(p.resident, p.floor)
	for ; p.chunks.known > limit && most > 0 && p.chunks.ghosts.front != 0; most-- {
		i := p.chunks.ghosts.front
		p.chunks.removeGhost(i)
		p.count(&p.learner.gone, p.chunks.At(i))
		p.forget(i)
	}
}
