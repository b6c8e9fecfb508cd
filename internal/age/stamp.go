package age

import (
	"math"
	"time"
)

// Slack is how far the clocks of machines that share a store may be apart.
const Slack = 5 * time.Minute

// Stamp is when a chunk was stored and when it is over, in seconds since 1970. The
// zero Stamp is that of a chunk without a bound.
type Stamp struct{ Born, Dies uint32 }

// Bounded reports whether the stamp is of a chunk with a bound.
func (s Stamp) Bounded() bool { return s.Dies != 0 }

// over reports whether the time of the stamp has come.
func (s Stamp) over(now uint32) bool {
	return s.Dies != 0 && (now >= s.Dies || s.ahead(now))
}

// Ahead reports whether a stamp is of a clock that is ahead of ours by more than Slack.
func (b *Book) Ahead(s Stamp) bool { return b != nil && s.Bounded() && s.ahead(b.Now()) }

// within is the stamp with an end at most so many seconds after the birth; 0 leaves it.
func (s Stamp) within(most uint32) Stamp {
	if end := sum(s.Born, most); most != 0 && (s.Dies == 0 || end < s.Dies) {
		s.Dies = end
	}
	return s
}

func (s Stamp) ahead(now uint32) bool {
	return uint64(s.Born) > uint64(now)+uint64(Slack/time.Second)
}

// Now is the time that counts, in seconds since 1970: see the package.
func (b *Book) Now() uint32 {
	if b == nil {
		return uint32(time.Now().Unix())
	}
	return uint32(max(b.wall(), b.started.Add(b.now().Sub(b.started)).Unix()))
}

// sum is a time so many seconds after another, the last representable one at most.
func sum(at, seconds uint32) uint32 {
	return uint32(min(uint64(at)+uint64(seconds), math.MaxUint32))
}

// shorter is the shorter of two ages, of which 0 is no bound.
func shorter(a, b uint32) uint32 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
