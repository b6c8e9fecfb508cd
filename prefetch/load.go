package prefetch

import (
	"cmp"
	"context"
	"errors"
)

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
	select {
	case <-change:
		return true
	case <-ctx.Done():
		return false
	}
}
