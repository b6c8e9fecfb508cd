package explain

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/kvstored/kvstored/key"
)

// HalfLife is the time after which a request counts half.
const HalfLife = 10 * time.Minute

const (
	parts   = 16
	buckets = 256 // of a part
	slots   = 8   // of a bucket
	// heatEntries is how many ends of prompts a table remembers: 1.25 MiB.
	heatEntries = parts * buckets * slots
)

// End is what a table has of one end of a prompt.
type End struct {
	Key  key.Key // of its last chunk
	Heat float64 // requests, each counting half after HalfLife
	Last time.Time
}

// Heat is the ends of prompts that were noted lately. It is safe for concurrent use.
type Heat struct {
	seed  maphash.Seed
	begun time.Time
	part  [parts]part
}

type part struct {
	sync.Mutex
	at [buckets * slots]heatEntry
}

// heatEntry is a slot; last 0 is an empty one.
type heatEntry struct {
	key   key.Key
	score float32
	last  uint32 // seconds since a second before begun
}

// NewHeat returns an empty table.
func NewHeat() *Heat { return &Heat{seed: maphash.MakeSeed(), begun: time.Now()} }

// Asked notes a request that found a prompt up to a chunk.
func (t *Heat) Asked(k key.Key) { t.note(k, 1) }

// Stored notes that a prompt was stored up to a chunk, which makes it young and not hot.
func (t *Heat) Stored(k key.Key) { t.note(k, 0) }

func (t *Heat) note(k key.Key, uses float32) {
	now := uint32(time.Since(t.begun)/time.Second) + 1
	h := maphash.Bytes(t.seed, k.Hash[:]) + binary.LittleEndian.Uint64(k.Space[:8])
	p := &t.part[h%parts]
	at := h / parts % buckets * slots
	p.Lock()
	defer p.Unlock()
	bucket := p.at[at : at+slots]
	oldest := 0
	for i := range bucket {
		if bucket[i].key == k && bucket[i].last != 0 {
			bucket[i].score, bucket[i].last = faded(bucket[i].score, now-bucket[i].last)+uses, now
			return
		}
		if bucket[i].last < bucket[oldest].last {
			oldest = i
		}
	}
	bucket[oldest] = heatEntry{k, uses, now}
}

// faded returns a score as it is so many seconds later.
func faded(score float32, seconds uint32) float32 {
	if score == 0 || seconds == 0 {
		return score
	}
	return score * float32(math.Exp2(-float64(seconds)/HalfLife.Seconds()))
}

// Ends lists what the table has, in no order, with scores as they are now.
func (t *Heat) Ends() (ends []End) {
	now := uint32(time.Since(t.begun)/time.Second) + 1
	for i := range t.part {
		for b := range buckets {
			ends = t.part[i].append(ends, b*slots, now, t.begun)
		}
	}
	return ends
}

// append adds the entries of a bucket.
func (p *part) append(ends []End, at int, now uint32, begun time.Time) []End {
	p.Lock()
	defer p.Unlock()
	for _, e := range p.at[at : at+slots] {
		if e.last != 0 {
			ends = append(ends, End{e.key, float64(faded(e.score, now-e.last)), begun.Add(time.Duration(e.last-1) * time.Second)})
		}
	}
	return ends
}
