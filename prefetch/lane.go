package prefetch

import (
	"cmp"
	"context"
)

// maxLoads bounds a job's loads in flight where chunks are small.
const maxLoads = 64

// lane is the chunks of one origin.
type lane struct {
	next   int // first item of it that was not started; or behind the last
	flying int
	bytes  int64 // of those that are flying, where Options.Bytes says how many
}

// seek moves a lane on to its next item that was not started; called with the
// mutex held, or before j is shared.
func (j *Job[T]) seek(l int) {
	next := &j.mu.lanes[l].next
	for *next < len(j.mu.items) && int(j.mu.items[*next].lane) != l {
		*next++
	}
}

// take waits for a place for a load. It is taken before the load counts as under way: one
// that waits may be what another of the job waits for. False says that ctx has ended.
func (o *Options[T]) take(ctx context.Context) bool {
	if o.Places == nil {
		return true
	}
	select {
	case o.Places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *Options[T]) give() {
	if o.Places != nil {
		<-o.Places
	}
}

// admit waits until the next load fits the window, and returns its item and
// lane; false once there is none.
func (j *Job[T]) admit(ctx context.Context) (i, l int, ok bool) {
	for {
		j.mu.Lock()
		change := j.mu.change.Next()
		var over bool
		i, over = j.next()
		if i >= 0 {
			l = int(j.mu.items[i].lane)
			j.mu.items[i].flying = true
			j.mu.flying++
			j.mu.lanes[l].flying++
			j.mu.lanes[l].bytes += j.bytes(i)
			j.mu.lanes[l].next++
			j.seek(l)
		}
		j.mu.Unlock()
		if over || i >= 0 {
			return i, l, !over
		}
		select {
		case <-change:
		case <-ctx.Done():
			return 0, 0, false
		}
	}
}

// next is the first item that may start now, or -1; over says that none ever
// will. Called with the mutex held.
func (j *Job[T]) next() (first int, over bool) {
	first, over = -1, true
	limit := j.limit()
	for l := range j.mu.lanes {
		lane := &j.mu.lanes[l]
		if j.mu.done || lane.next >= len(j.mu.items) {
			continue
		}
		over = false
		if j.fits(lane, limit) && (first < 0 || lane.next < first) {
			first = lane.next
		}
	}
	return first, over
}

// fits reports whether the window has room for the next item of a lane.
func (j *Job[T]) fits(lane *lane, limit int) bool {
	if j.o.Bytes == nil {
		return j.mu.flying < limit && lane.flying < max(1, limit/len(j.mu.lanes))
	}
	return j.mu.flying < maxLoads && (lane.flying == 0 || lane.bytes+j.bytes(lane.next) <= j.o.Window/int64(len(j.mu.lanes)))
}

// bytes is what an item has, as far as Options.Bytes says.
func (j *Job[T]) bytes(i int) int64 {
	if j.o.Bytes == nil {
		return 0
	}
	return j.o.Bytes(j.o.From + i)
}

// limit is how many loads may fly; called with the mutex held.
func (j *Job[T]) limit() int {
	size := cmp.Or(j.mu.size, max(0, j.o.ChunkBytes), j.o.Window)
	return int(min(max(1, j.o.Window/max(1, size)), maxLoads))
}
