package prefetch

import "time"

// Link is what chunks are promoted over: a tier.
type Link struct {
	First          time.Duration // what one load alone takes
	BytesPerSecond float64       // of all loads together; 0 = not known
}

// Tempo is how long loads take that go on side by side over links, each in its order: a link
// needs the longer of the time of one load and of all bytes at its rate.
type Tempo struct {
	Seconds float64 // until the last link is done
	links   []Link
	bytes   []int64
}

// NewTempo is that of no loads yet.
func NewTempo(links []Link) *Tempo { return &Tempo{links: links, bytes: make([]int64, len(links))} }

// Load adds a load. It is false where the rate of its link is not known, which counts as no time.
func (t *Tempo) Load(link int, bytes int64) (known bool) {
	l := &t.links[link]
	if l.BytesPerSecond == 0 {
		return false
	}
	t.bytes[link] += bytes
	t.Seconds = max(t.Seconds, l.First.Seconds(), float64(t.bytes[link])/l.BytesPerSecond)
	return true
}

// Step is one chunk of a prefix.
type Step struct {
	Link   int // where it comes from; -1 = it is there
	Bytes  int64
	Tokens uint32
}

// Advise returns how many leading chunks to load so that a prompt is ready
// soonest, and how soon: the rest, and tokens that follow the chunks, are
// computed once the prefix before them is there.
//
// The prefix of k chunks is ready when the last link is, and what follows takes its tokens
// at the prefill rate:
//
//	time(k) = max over links(max(First, bytes(k)/BytesPerSecond)) + tokens behind k / rate
//
// Of two equally good answers the one that computes less is taken. Chunks that
// are there at the start are always part of it.
func Advise(steps []Step, links []Link, tokens uint64, tokensPerSecond float64) (load int, after time.Duration) {
	for _, s := range steps {
		tokens += uint64(s.Tokens)
	}
	tempo, best := NewTempo(links), -1.0
	for k := 0; ; k++ {
		if k == len(steps) || steps[k].Link >= 0 {
			if t := tempo.Seconds + float64(tokens)/tokensPerSecond; best < 0 || t <= best {
				load, best = k, t
			}
		}
		if k == len(steps) {
			return load, time.Duration(best * float64(time.Second))
		}
		s := &steps[k]
		tokens -= uint64(s.Tokens)
		if s.Link >= 0 {
			tempo.Load(s.Link, s.Bytes)
		}
	}
}
