package store

import (
	"sync"
	"time"

	"github.com/kvstored/kvstored/tier"
)

// Speed is what a tier delivered lately.
type Speed struct {
	First          time.Duration // of a load that nothing else was under way with; 0 = not measured yet
	BytesPerSecond float64       // of all loads together while any was under way; 0 = not measured yet
	ChunkBytes     int64         // of the last chunk
	Others         int           // clients whose loads are under way or wait
}

// speedStretch bounds how long a busy time is measured as one.
const speedStretch = 100 * time.Millisecond

// speedometer measures one tier. Both numbers are exponentially weighted
// means: a load or a stretch of loads that is as long as usual counts for a
// quarter, a short stretch for less, because it says little of what many loads
// at a time would get.
type speedometer struct {
	mu struct {
		sync.Mutex
		flying int
		since  time.Time // of the stretch
		chunks int       // that came in it
		bytes  int64
		first  float64 // seconds
		rate   float64 // bytes a second
	}
}

const speedWeight = 0.25

// begin notes that a load is under way until done is called with the bytes
// it brought.
func (m *speedometer) begin() (done func(bytes int64)) {
	start := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	alone := m.mu.flying == 0
	if alone {
		m.mu.since, m.mu.chunks, m.mu.bytes = start, 0, 0
	}
	m.mu.flying++
	return func(bytes int64) { m.done(start, alone, bytes) }
}

func (m *speedometer) done(start time.Time, alone bool, bytes int64) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.flying--
	if bytes > 0 {
		m.mu.chunks++
		m.mu.bytes += bytes
		if alone {
			m.mu.first = blend(m.mu.first, now.Sub(start).Seconds(), speedWeight)
		}
	}
	took := now.Sub(m.mu.since)
	if m.mu.flying > 0 && took < speedStretch {
		return
	}
	if m.mu.bytes > 0 && took > 0 {
		weight := min(speedWeight, speedWeight*float64(m.mu.chunks)/usualLoadsAtOnce)
		m.mu.rate = blend(m.mu.rate, float64(m.mu.bytes)/took.Seconds(), weight)
	}
	m.mu.since, m.mu.chunks, m.mu.bytes = now, 0, 0
}

// usualLoadsAtOnce is how many loads tell a tier's speed.
const usualLoadsAtOnce = 8

// blend is the mean after one more sample; the first counts whole.
func blend(mean, sample, weight float64) float64 {
	if mean == 0 {
		return sample
	}
	return mean + weight*(sample-mean)
}

func (m *speedometer) read() Speed {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Speed{First: time.Duration(m.mu.first * float64(time.Second)), BytesPerSecond: m.mu.rate}
}

// Speed is how fast loads from p are, as far as there were any; the zero Speed
// for DRAM and where there is no such tier.
func (l *Loader) Speed(p tier.Place) Speed {
	from := l.levels.at[p]
	if from == nil || from.admission == nil {
		return Speed{}
	}
	sp := from.speed.read()
	sp.ChunkBytes, sp.Others = from.usual.Load(), from.admission.Stats().Clients
	return sp
}
