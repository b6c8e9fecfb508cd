package prefetch

import "time"

// Link is what chunks are promoted over: a tier.
type Link struct {
	First          time.Duration // what one load alone takes
	BytesPerSecond float64       // of all loads together; 0 = not known: as if at once
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
// The model: links load side by side, each in prefix order. A link needs for
// its part of the first k chunks the longer of the time of one load and of its
// bytes at its rate. The prefix of k chunks is ready when the last link is,
// and what follows takes its tokens at the prefill rate:
//
//	time(k) = max over links(max(First, bytes(k)/BytesPerSecond)) + tokens behind k / rate
//
// Of two equally good answers the one that computes less is taken. Chunks that
// are there at the start are always part of it.
func Advise(steps []Step, links []Link, tokens uint64, tokensPerSecond float64) (load int, after time.Duration) {
	for _, s := range steps {
		tokens += uint64(s.Tokens)
	}
	bytes := make([]int64, len(links))
	ready, best := 0.0, -1.0
	for k := 0; ; k++ {
		if k == len(steps) || steps[k].Link >= 0 {
			if t := ready + float64(tokens)/tokensPerSecond; best < 0 || t <= best {
				load, best = k, t
			}
		}
		if k == len(steps) {
			return load, time.Duration(best * float64(time.Second))
		}
		s := &steps[k]
		tokens -= uint64(s.Tokens)
		if s.Link >= 0 {
			bytes[s.Link] += s.Bytes
			ready = max(ready, links[s.Link].takes(bytes[s.Link]))
		}
	}
}

// takes is the seconds in which so many bytes come.
func (l *Link) takes(bytes int64) float64 {
	t := l.First.Seconds()
	if l.BytesPerSecond > 0 {
		t = max(t, float64(bytes)/l.BytesPerSecond)
	}
	return t
}
