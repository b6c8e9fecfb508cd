package main

import (
	"math"
	"math/bits"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
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

// builds is how often the same thing is built to time it.
const builds = 3

// timed builds the same thing a few times. A call that makes it grow is the
// same one in each, and what else the machine does comes at another: the middle
// of the times of each call is its own, while all has what disturbed them, too.
// It builds in the memory that the process has already: what fresh memory costs
// is the kernel's.
func timed(build func(took func(time.Duration)) error) (middle, all *times, err error) {
	var took [builds][]uint32 // ns of each call
	all, middle = new(times), new(times)
	for i := range took {
		keepMemory()
		err := build(func(d time.Duration) {
			all.add(d)
			took[i] = append(took[i], uint32(min(d, math.MaxUint32)))
		})
		if err != nil {
			return nil, nil, err
		}
	}
	for call := range took[0] {
		var of [builds]uint32
		for i := range of {
			of[i] = took[i][call]
		}
		slices.Sort(of[:])
		middle.add(time.Duration(of[builds/2]))
	}
	return middle, all, nil
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

// keepMemory frees memory that is not in use any more, for this process alone: the
// next cycle is far away, so the runtime gives nothing back to the kernel.
func keepMemory() {
	debug.SetGCPercent(10_000)
	runtime.GC()
}
