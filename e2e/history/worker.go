package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	callTimeout = 30 * time.Second
	maxPayload  = 320 << 10
	maxRun      = 4 // chunks of one put
	longRead    = 2 * leaseAge
	// mostAge is the longest end that a chunk is stored with.
	mostAge = 3 * time.Second
)

// worker is a client that does something at random, one thing at a time.
type worker struct {
	history *history // nil for one that only stores
	writes  writeLog
	prompts []prompt
	rng     *rand.Rand
	s       store
	next    version // that it has not used
	aged    bool    // chunks of aged prompts are stored with an end
}

// writeLog is told of each write before it is sent, with how old its chunk may become, and
// when it has ended.
type writeLog interface {
	writing(k key.Hash, v version, begin moment, age time.Duration) error
	wrote(k key.Hash, v version, end moment, how outcome) error
}

// firstOf is the first version of a worker.
func firstOf(worker int) version { return version(worker+1) << 40 }

func now() moment { return moment(time.Now().UnixNano()) }

// step does one thing. The error is one of the connection.
func (w *worker) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p := w.prompts[w.rng.IntN(len(w.prompts))]
	var err error
	switch n := w.rng.IntN(100); {
	case n < 38:
		err = w.put(ctx, p)
	case n < 68:
		err = w.read(ctx, p)
	case n < 84:
		err = w.get(ctx, p)
	case n < 91:
		err = w.delete(ctx, p)
	case n < 92:
		_, err = w.s.Flush(ctx, w.rng.IntN(4) == 0)
	default:
		err = w.s.Exercise(ctx, p.Prompt, w.rng.Uint64())
	}
	return connection(err)
}

// connection is err if the connection is gone, or the daemon does not answer.
func connection(err error) error {
	if errors.Is(err, client.ErrDisconnected) || errors.Is(err, client.ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// size is one of many: in the database, below a page, and far above.
func (w *worker) size() int {
	top := maxPayload >> (4 * w.rng.IntN(3))
	return headerBytes + w.rng.IntN(top)
}

// put stores a new version of some chunks of a prompt, where there are none.
func (w *worker) put(ctx context.Context, p prompt) error {
	first := w.rng.IntN(len(p.hashes))
	if w.rng.IntN(2) == 0 {
		first = 0
	}
	ks := p.hashes[first:min(first+1+w.rng.IntN(maxRun), len(p.hashes))]
	payloads, vs := make([][]byte, len(ks)), make([]version, len(ks))
	by := means{inline: w.rng.IntN(3) == 0}
	if w.aged && p.aged { // what is put over the socket has none
		by = means{age: time.Second + time.Duration(w.rng.IntN(int(mostAge/time.Second)))*time.Second}
	}
	for i, k := range ks {
		vs[i] = w.next
		w.next++
		payloads[i] = make([]byte, w.size())
		fill(payloads[i], k, vs[i])
		if err := w.writes.writing(k, vs[i], now(), by.age); err != nil {
			return err
		}
	}
	results, err := w.s.Put(ctx, p.Prompt, first, payloads, by)
	end := now()
	for i, k := range ks {
		if err := w.writes.wrote(k, vs[i], endOf(err, end), outcomeOf(results, err, i)); err != nil {
			return err
		}
	}
	return err
}

// endOf is when a call that ended at end may have had its last effect.
func endOf(err error, end moment) moment {
	if connection(err) != nil {
		return never // until the daemon has ended
	}
	return end
}

func outcomeOf(results []client.Stored, err error, i int) outcome {
	switch {
	case err != nil:
		return unknown
	case i < len(results) && results[i].Code == client.ResultStored:
		return stored
	}
	return refused
}

// read leases the stored prefix of a prompt, looks at it twice, and believes it
// if the lease held.
func (w *worker) read(ctx context.Context, p prompt) error {
	begin := now()
	l, err := w.s.Lease(ctx, p.Prompt)
	if err != nil {
		return err
	}
	first, err := w.look(ctx, l)
	if err != nil {
		return err
	}
	read := now()
	if w.rng.IntN(50) == 0 {
		pause(ctx, time.Duration(w.rng.Int64N(int64(longRead))))
	}
	second, err := w.look(ctx, l)
	if err != nil {
		return err
	}
	if err := l.Release(ctx); err != nil {
		return err // revoked: forgotten
	}
	for i := range first {
		w.history.read(p.hashes[i], first[i], begin, read)
		if string(first[i]) != string(second[i]) {
			w.history.broken(p.hashes[i], fmt.Sprintf("read at %d and again before %d", read, now()))
		}
	}
	return nil
}

// look copies what a lease has.
func (w *worker) look(ctx context.Context, l lease) (out [][]byte, err error) {
	for i := range l.Len() {
		b, err := l.Chunk(ctx, i)
		if errors.Is(err, client.ErrNotReady) || errors.Is(err, client.ErrRevoked) {
			break
		}
		if err != nil {
			return nil, err
		}
		out = append(out, append([]byte(nil), b...))
	}
	return out, nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// get reads over the socket.
func (w *worker) get(ctx context.Context, p prompt) error {
	first, begin := w.rng.IntN(len(p.hashes)), now()
	chunks, err := w.s.Get(ctx, p.Prompt, first)
	if err != nil {
		return err
	}
	end := now()
	for i, b := range chunks {
		w.history.read(p.hashes[first+i], b, begin, end)
	}
	return nil
}

// delete forgets some chunks of a prompt: often its head, which leaves orphans.
func (w *worker) delete(ctx context.Context, p prompt) error {
	from := w.rng.IntN(len(p.hashes))
	if w.rng.IntN(2) == 0 {
		from = 0
	}
	ks := p.hashes[from:min(from+1+w.rng.IntN(promptChunks), len(p.hashes))]
	begin := now()
	w.history.deleting(ks, begin)
	err := w.s.Delete(ctx, ks)
	w.history.deleted(ks, begin, now(), err == nil)
	return err
}
