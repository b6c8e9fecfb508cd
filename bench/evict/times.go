package main

import (
	"math/bits"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// times are the durations of many calls of one kind, each to 3 %.
type times struct {
	n       int
	counts  [64 << subBits]int
	longest time.Duration
}

const subBits = 5

func (t *times) add(d time.Duration) {
	e := max(bits.Len64(uint64(d)), subBits+1) - subBits - 1
	t.counts[e<<subBits+int(d>>e)]++
	t.n++
	t.longest = max(t.longest, d)
}

// at returns the quantile q.
func (t *times) at(q float64) time.Duration {
	left := int(q * float64(t.n))
	for i, n := range t.counts {
		if left -= n; left < 0 {
			e := max(i>>subBits-1, 0)
			return round(time.Duration(i-e<<subBits) << e)
		}
	}
	return round(t.longest)
}

// round keeps about three digits.
func round(d time.Duration) time.Duration {
	switch {
	case d > time.Millisecond:
		return d.Round(10 * time.Microsecond)
	case d > 10*time.Microsecond:
		return d.Round(100 * time.Nanosecond)
	}
	return d.Round(10 * time.Nanosecond)
}

// marking is the processor time in which the garbage collector marks what
// there is: the least of ten, for a busy machine only adds.
func marking() time.Duration {
	s := []metrics.Sample{
		{Name: "/cpu/classes/gc/mark/assist:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"},
		{Name: "/cpu/classes/gc/mark/idle:cpu-seconds"},
	}
	sum := func() (seconds float64) {
		runtime.GC()
		metrics.Read(s)
		for _, x := range s {
			seconds += x.Value.Float64()
		}
		return seconds
	}
	least, before := time.Duration(1<<63-1), sum()
	for range 10 {
		after := sum()
		least = min(least, time.Duration((after-before)*float64(time.Second)))
		before = after
	}
	return round(least)
}

// keepMemory frees what is not in use any more, for this process alone: the
// next cycle is far away, so the runtime gives nothing back to the kernel.
func keepMemory() {
	debug.SetGCPercent(10_000)
	runtime.GC()
}
