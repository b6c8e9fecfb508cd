package prefetch

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/base"
)

// Source promotes chunk i and returns it with its payload bytes. It ends
// with ctx, and calls base.Queued when the next chunk of its lane may be asked for.
type Source[T any] interface {
	Load(ctx context.Context, i int) (T, int64, error)
}

// Errors a job ends with, besides its source's own.
var (
	ErrDeadline  = errors.New("deadline")
	ErrCancelled = errors.New("cancelled")
)

// ErrEnd is what a Source answers for a chunk behind the end of the prefix,
// where that was not known when the job was made. A job that reaches it is
// complete.
var ErrEnd = errors.New("end of the prefix")

// Options of a Job.
type Options[T any] struct {
	From, To int   // chunks to promote: From is first
	Window   int64 // payload bytes in flight; at least one chunk always is
	// ChunkBytes is what a chunk has, or may have at most where that is not known.
	// Each counts as so much until the first is promoted, and then as much as that.
	// 0: one load at a time until then.
	ChunkBytes int64
	// Bytes is what chunk i has, where chunks are known to differ; then ChunkBytes and what
	// was promoted count for nothing. May be nil.
	Bytes func(i int) int64
	// Lane says where chunk i comes from: from 0 to Lanes-1. Loads start in
	// prefix order in each lane, with an equal share of the window, so that
	// none waits for another. May be nil where there is one.
	Lane  func(i int) int
	Lanes int
	// Places bounds the loads under way of several jobs together: as many as it holds.
	// Nil: no bound but those of each job.
	Places   chan struct{}
	Deadline time.Time // zero = none
	// Discard takes back a chunk that was promoted behind the end of the job, or
	// too late for it. It must not block.
	Discard func(T)
	// Yields reports whether a chunk may have failed only because chunks
	// behind it were promoted first and hold the room it needs: then they are
	// discarded, the last first, and it is tried again. Nil: never.
	Yields func(error) bool
	// Changed is called, without locks and from any goroutine, when the
	// ready prefix grew or the job ended. It must not block. May be nil.
	Changed func()
}

// Job is one running prefetch. It is safe for concurrent use.
type Job[T any] struct {
	o     Options[T]
	src   Source[T]
	ended chan struct{} // closed when end has discarded what came too late

	mu struct {
		sync.Mutex
		items  []item[T] // chunks From..To
		ready  int       // leading items that are there
		flying int       // loads under way
		lanes  []lane
		size   int64 // of the last chunk that was promoted with any bytes; 0 = none yet
		done   bool
		err    error // why it ended; nil = complete
		change base.Signal
		stop   context.CancelFunc // ends the loads; nil until Run
	}
}

type item[T any] struct {
	value  T
	here   bool
	flying bool
	lane   uint8
}

// State is how far a job is.
type State struct {
	Ready int   // chunks from From on that are up, without a gap
	Done  bool  // Ready will not grow any more
	Err   error // why a job that is done is not complete
}

// New makes a job; Run starts it.
func New[T any](o Options[T], src Source[T]) *Job[T] {
	j := &Job[T]{o: o, src: src, ended: make(chan struct{})}
	j.mu.items = make([]item[T], max(0, o.To-o.From))
	j.mu.lanes = make([]lane, max(1, o.Lanes))
	if o.Lane != nil {
		for i := range j.mu.items {
			j.mu.items[i].lane = uint8(o.Lane(o.From + i))
		}
	}
	for l := range j.mu.lanes {
		j.seek(l)
	}
	return j
}

// Run loads until the job has ended, the last load has returned, and the chunks
// to discard were. The job may end earlier, at its deadline or by Cancel
// or ctx: loads under way at the deadline go on, into the cache, and are
// discarded; after a Cancel their contexts end, and so they do when the job is
// ended by a load that failed.
func (j *Job[T]) Run(ctx context.Context) {
	defer context.AfterFunc(ctx, func() { j.end(ErrCancelled) })() // Cancel has ended it when it calls stop
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	j.mu.Lock()
	j.mu.stop = stop
	j.mu.Unlock()
	if !j.o.Deadline.IsZero() {
		t := time.AfterFunc(time.Until(j.o.Deadline), func() { j.end(ErrDeadline) })
		defer t.Stop()
	}
	// The runtime runs goroutines in an order of its own. A load begins when the one before
	// it in its lane is in line, or has ended.
	inLine := make([]chan struct{}, len(j.mu.lanes))
	g, ctx := errgroup.WithContext(ctx)
	for {
		if !j.o.take(ctx) {
			break
		}
		i, l, ok := j.admit(ctx)
		if !ok {
			j.o.give()
			break
		}
		before, mine := inLine[l], make(chan struct{})
		inLine[l] = mine
		queued := sync.OnceFunc(func() { close(mine) })
		g.Go(func() error {
			defer j.o.give()
			defer queued()
			if before != nil {
				<-before
			}
			j.load(base.WithQueued(ctx, queued), i, l)
			return j.failure()
		})
	}
	j.end(g.Wait())
	<-j.ended // the deadline, or Cancel, may be at it
}

// failure is the error of the load that has ended the job: nothing that is
// under way can become part of the prefix any more. While what lies before
// that load is on its way there is none.
func (j *Job[T]) failure() error {
	st := j.State()
	if !st.Done || errors.Is(st.Err, ErrDeadline) || errors.Is(st.Err, ErrCancelled) {
		return nil
	}
	return st.Err
}

// cut shortens the job to what lies before chunk i: nothing behind it can
// become part of the prefix. Those before may still be on its way.
func (j *Job[T]) cut(i int, err error) {
	j.mu.Lock()
	if j.mu.done || i >= len(j.mu.items) {
		j.mu.Unlock()
		return
	}
	late := here(j.mu.items[i:])
	j.mu.items = j.mu.items[:i]
	j.mu.err = err
	over := j.mu.ready == i
	j.mu.flying++
	j.mu.Unlock()
	j.drop(late)
	if over {
		j.end(nil)
	}
}

// end makes the ready prefix final. If all is there it is complete, or as long
// as cut left it, for every cause.
func (j *Job[T]) end(cause error) {
	j.mu.Lock()
	if j.mu.done {
		j.mu.Unlock()
		return
	}
	j.mu.done = true
	if j.mu.ready < len(j.mu.items) {
		j.mu.err = cause
	}
	late := here(j.mu.items[j.mu.ready:])
	j.mu.items = j.mu.items[:j.mu.ready]
	j.mu.change.Wake()
	j.mu.Unlock()
	j.discard(late)
	j.changed()
	close(j.ended)
}

func here[T any](items []item[T]) []T {
	var out []T
	for _, it := range items {
		if it.here {
			out = append(out, it.value)
		}
	}
	return out
}

// drop discards vs. The caller counts them as one that is flying from when it took
// them out of the items: the memory that they hold is not free before drop ends.
func (j *Job[T]) drop(vs []T) {
	j.discard(vs)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.flying--
	j.mu.change.Wake()
}

func (j *Job[T]) discard(vs []T) {
	for _, v := range vs {
		j.o.Discard(v)
	}
}

func (j *Job[T]) changed() {
	if j.o.Changed != nil {
		j.o.Changed()
	}
}

// Stop ends the job now, with the ready chunks, as its deadline would: loads
// under way go on, into the cache.
func (j *Job[T]) Stop() { j.end(ErrDeadline) }

// Cancel ends the job now, with the ready chunks, and the contexts of its loads.
func (j *Job[T]) Cancel() {
	j.end(ErrCancelled)
	j.mu.Lock()
	stop := j.mu.stop
	j.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// State is how far the job is now.
func (j *Job[T]) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return State{Ready: j.mu.ready, Done: j.mu.done, Err: j.mu.err}
}

// Wait returns when at least min chunks are ready, the job has ended, or ctx
// has; it never fails.
func (j *Job[T]) Wait(ctx context.Context, min int) State {
	for {
		j.mu.Lock()
		st := State{Ready: j.mu.ready, Done: j.mu.done, Err: j.mu.err}
		change := j.mu.change.Next()
		j.mu.Unlock()
		if st.Done || st.Ready >= min {
			return st
		}
		if !base.Await(ctx, change) {
			return st
		}
	}
}

// Ready appends the ready chunks from the i-th of the job on to out. They
// belong to the runner of the job: nothing else discards them.
func (j *Job[T]) Ready(i int, out []T) []T {
	j.mu.Lock()
	defer j.mu.Unlock()
	for ; i < j.mu.ready; i++ {
		out = append(out, j.mu.items[i].value)
	}
	return out
}

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
		if !base.Await(ctx, change) {
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

// load loads chunk i in lane l, again where it only lacks room, and adds it to the
// job.
func (j *Job[T]) load(ctx context.Context, i, l int) {
	v, size, err := j.src.Load(ctx, j.o.From+i)
	for err != nil && j.yield(ctx, i, err) {
		v, size, err = j.src.Load(ctx, j.o.From+i)
	}
	var grew, over bool
	if err == nil {
		grew, over = j.keep(i, v, size)
	}
	j.loaded(i, l)
	switch {
	case err != nil:
		j.fail(ctx, i, err)
	case over:
		j.end(nil)
	case grew:
		j.changed()
	}
}

// keep adds chunk i to the job, or discards it if the job does not want it any
// more. It reports whether the ready prefix grew, and whether it is complete.
func (j *Job[T]) keep(i int, v T, size int64) (grew, over bool) {
	j.mu.Lock()
	if j.mu.done || i >= len(j.mu.items) {
		j.mu.Unlock()
		j.discard([]T{v})
		return false, false
	}
	defer j.mu.Unlock()
	j.mu.items[i].value, j.mu.items[i].here = v, true
	j.mu.size = cmp.Or(size, j.mu.size)
	before := j.mu.ready
	for j.mu.ready < len(j.mu.items) && j.mu.items[j.mu.ready].here {
		j.mu.ready++
	}
	return j.mu.ready > before, j.mu.ready == len(j.mu.items)
}

// loaded ends the load of chunk i in lane l: it does not count as flying any
// more.
func (j *Job[T]) loaded(i, l int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.flying--
	j.mu.lanes[l].flying--
	j.mu.lanes[l].bytes -= j.bytes(i)
	if i < len(j.mu.items) {
		j.mu.items[i].flying = false
	}
	j.mu.change.Wake()
}

// fail ends the job before chunk i, which could not be loaded.
func (j *Job[T]) fail(ctx context.Context, i int, err error) {
	switch {
	case ctx.Err() != nil:
		j.end(ErrCancelled) // the load says what the context said
	case errors.Is(err, ErrEnd):
		j.cut(i, nil)
	default:
		j.cut(i, err)
	}
}

// yield takes back what chunks behind chunk i hold, if that is why it failed:
// the job ends before the last of them, and i may try again. It waits for
// those on their way, which may hold it by now. False says that none does.
func (j *Job[T]) yield(ctx context.Context, i int, err error) bool {
	if j.o.Yields == nil || !j.o.Yields(err) {
		return false
	}
	j.mu.Lock()
	if j.mu.done || i >= len(j.mu.items) {
		j.mu.Unlock()
		return false
	}
	for k := len(j.mu.items) - 1; k > i; k-- {
		if j.mu.items[k].here {
			v := j.mu.items[k].value
			j.mu.items, j.mu.err = j.mu.items[:k], err
			j.mu.flying++
			j.mu.Unlock()
			j.drop([]T{v})
			return true
		}
	}
	behind := j.mu.flying
	for _, it := range j.mu.items[:i+1] {
		if it.flying {
			behind--
		}
	}
	change := j.mu.change.Next()
	j.mu.Unlock()
	if behind == 0 {
		return false
	}
	return base.Await(ctx, change)
}
