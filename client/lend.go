package client

import (
	"context"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// lend makes f a fill without shared memory: a lookup tells which slots exist,
// and the others get memory of this process.
func (f *Fill) lend(ctx context.Context, o ReserveOptions, sizes []uint32) error {
	n, err := f.count(o, sizes)
	if err != nil {
		return err
	}
	m, err := f.c.Lookup(ctx, f.prompt, 0)
	if err != nil {
		return err
	}
	f.maxAge = seconds(o.MaxAge)
	f.slots = make([]wire.Slot, n)
	f.mu.local = make([][]byte, n)
	f.mu.over = make([]bool, n)
	f.reason = Complete
	for i := range f.slots {
		s := wire.Slot{Code: Granted, Length: sizes[0]}
		if len(sizes) > 1 {
			s.Length = sizes[i]
		}
		if uint64(o.First)+uint64(i) < uint64(m.Total.Chunks) {
			s.Code = Exists
		}
		if s.Length == 0 || s.Length > f.c.hello.MaxPayload {
			return refuse("reserve", ErrTooLarge, "chunk %d has %d bytes: use 1 to %d", o.First+i, s.Length, f.c.hello.MaxPayload)
		}
		f.slots[i] = s
	}
	return nil
}

// count is the number of slots. The daemon knows how many chunks a prompt has;
// here the options and the form of the prompt have to tell.
func (f *Fill) count(o ReserveOptions, sizes []uint32) (int, error) {
	n := o.Count
	if n == 0 && len(sizes) > 1 {
		n = len(sizes)
	}
	if n == 0 {
		chunks, err := f.c.chunks(&f.prompt)
		if err != nil {
			return 0, err
		}
		n = max(0, chunks-o.First)
	}
	if n > key.MaxChunks || len(sizes) > 1 && len(sizes) != n {
		return 0, refuse("reserve", ErrBadRequest, "%d sizes for %d chunks: give one for all, or one each, for at most %d", len(sizes), n, key.MaxChunks)
	}
	return n, nil
}

// lent is the memory of slot i, made when it is first asked for.
func (f *Fill) lent(i int) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.over[i] {
		return nil
	}
	if f.mu.local[i] == nil {
		f.mu.local[i] = make([]byte, f.slots[i].Length)
	}
	return f.mu.local[i]
}

// send commits n slots from first by putting them inline, run by run.
func (f *Fill) send(ctx context.Context, first, n int, out []Stored) ([]Stored, error) {
	for i := first; i < first+n; {
		run := f.take(i, first+n)
		if len(run) == 0 {
			out = append(out, Stored{Code: ResultNotGranted})
			i++
			continue
		}
		var err error
		if out, err = f.c.put(ctx, &f.prompt, wire.PutRequest{First: uint32(f.first + i), MaxAge: f.maxAge}, run, out); err != nil {
			return out, err
		}
		i += len(run)
	}
	return out, nil
}

// take ends the slots of the run of granted ones from i up to end and returns
// their memory. A slot that was never written holds zeros.
func (f *Fill) take(i, end int) [][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	var run [][]byte
	for ; i < end && f.slots[i].Code == Granted && !f.mu.over[i]; i++ {
		p := f.mu.local[i]
		if p == nil {
			p = make([]byte, f.slots[i].Length)
		}
		run = append(run, p)
		f.mu.over[i], f.mu.local[i] = true, nil
	}
	return run
}

func (f *Fill) drop(first, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := first; i < first+n; i++ {
		f.mu.over[i], f.mu.local[i] = true, nil
	}
}
