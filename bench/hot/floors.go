package main

import (
	"runtime"
	"sync"
	"time"

	"github.com/kvstored/kvstored/bench/measure"
	"github.com/kvstored/kvstored/internal/arena"
)

// workingSet is what floors and transfers walk through, so that caches hold
// none of it.
const workingSet = 512 << 20

// buffers are the process's own memory: what an engine's host pool would be.
type buffers struct{ src, dst []byte }

func newBuffers() *buffers {
	b := &buffers{make([]byte, workingSet), make([]byte, workingSet)}
	for i := range b.src {
		b.src[i] = byte(i * 7)
	}
	copy(b.dst, b.src) // faults the pages in
	return b
}

// part is the i-th piece of size bytes, walking round.
func part(p []byte, i, size int) []byte {
	off := i * size % (len(p) - size + 1)
	return p[off : off+size]
}

// floorCopy is C: the way that copies pieces of size bytes fastest, and the time
// that it takes for one.
func floorCopy(b *buffers, size int) (measure.Copy, time.Duration) {
	return measure.Fastest(b.dst, b.src, size)
}

// floorTwo is the time of one piece while two threads copy in that way.
func floorTwo(b *buffers, size int, way measure.Copy) time.Duration {
	var both sync.WaitGroup
	start := time.Now()
	half := len(b.src) / 2
	for k := range 2 {
		dst, src := b.dst[k*half:(k+1)*half], b.src[k*half:(k+1)*half]
		both.Go(func() {
			for at := 0; at+size <= half; at += size {
				way(dst[at:at+size], src[at:at+size])
			}
		})
	}
	both.Wait()
	return time.Since(start) / time.Duration(2*(half/size))
}

// floorHash is H: the time to hash one cold piece of size bytes.
func floorHash(b *buffers, size int) time.Duration {
	n := workingSet / size
	sum := uint64(0)
	start := time.Now()
	for i := range n {
		sum += arena.Checksum(part(b.src, i, size))
	}
	took := time.Since(start) / time.Duration(n)
	runtime.KeepAlive(sum) // or the loop would have nothing to do
	return took
}

const (
	trips   = 5000
	warmups = 200
)

// timed is the mean time of a round trip after a warm-up.
func timed(trip func() error) (time.Duration, error) {
	for range warmups {
		if err := trip(); err != nil {
			return 0, err
		}
	}
	start := time.Now()
	for range trips {
		if err := trip(); err != nil {
			return 0, err
		}
	}
	return time.Since(start) / trips, nil
}

const (
	idleTrips = 200
	idleFor   = 2 * time.Millisecond // long enough that both sides sleep
)

// timedIdle is the median time of a round trip after a pause, as an engine
// makes it: both sides and their CPUs have to be woken.
func timedIdle(trip func() error) (time.Duration, error) {
	took := make([]time.Duration, idleTrips)
	for i := range took {
		time.Sleep(idleFor)
		start := time.Now()
		if err := trip(); err != nil {
			return 0, err
		}
		took[i] = time.Since(start)
	}
	return median(took), nil
}
