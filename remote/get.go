package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// readBytes is read at most and hashed at a time, so that it is in cache still.
const readBytes = 1 << 20

// corruptTries is how often an object is read whose bytes are wrong before it
// is deleted: one machine's bad cable must not empty everybody's store.
const corruptTries = 2

var errLength = errors.New("the body is not as long as the record says")

// Get implements tier.Tier. The body goes straight into the block. What is
// truly wrong in the store is deleted there, or nobody could store it again.
func (t *Tier) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	var b arena.Block
	var err error
	for range corruptTries {
		err = t.request(ctx, kind{op: "get", count: &t.count.gets, lane: t.traffic.reads}, func(ctx context.Context, api *client) (err error) {
			b, err = t.fetch(ctx, api, k, a)
			return err
		})
		if isRoom(err) || !errors.Is(err, tier.ErrCorrupt) {
			break
		}
	}
	switch {
	case isRoom(err):
	case err == nil:
		t.count.found.Add(1)
		t.count.foundBytes.Add(uint64(b.Len()))
		return b, nil
	case isNotFound(err):
		t.count.stale.Add(1)
		t.absent.add(k)
	case errors.Is(err, tier.ErrCorrupt):
		t.count.corrupt.Add(1)
		t.log.Error().Hex("hash", k.Hash[:]).Msg("an object does not have the bytes its record promises; it is deleted and recomputed")
		if derr := t.Delete(ctx, []key.Key{k}); derr != nil {
			t.log.Error().Err(derr).Msg("a corrupt object stays; delete it")
		}
	}
	return arena.Block{}, err
}

// fetch makes one request for k and reads its body.
func (t *Tier) fetch(ctx context.Context, api *client, k key.Key, a tier.Allocator) (arena.Block, error) {
	out, done, err := t.open(ctx, api, k)
	if err != nil {
		return arena.Block{}, err
	}
	defer done()
	defer out.Body.Close()
	r, err := parseMetadata(out.Metadata)
	switch {
	case err != nil || r.Key != k:
		// Whoever put it there may want it: it is left alone.
		return arena.Block{}, &Error{Op: "get", Err: fmt.Errorf("%w: %w", tier.ErrNotFound, errForeign)}
	case t.expired(out.LastModified):
		return arena.Block{}, &Error{Op: "get", Err: tier.ErrNotFound}
	case out.ContentLength != nil && *out.ContentLength != int64(r.Size):
		return arena.Block{}, &Error{Op: "get", Err: fmt.Errorf("%w: %w", tier.ErrCorrupt, errLength)}
	}
	b, err := a.Alloc(ctx, int(r.Size))
	if err != nil {
		return arena.Block{}, &roomError{err}
	}
	if err := t.fill(ctx, b, out.Body, r.Sum); err != nil {
		b.Release()
		return arena.Block{}, err
	}
	return b, nil
}

// fill reads a body into b, which it must fill exactly, and seals it.
func (t *Tier) fill(ctx context.Context, b arena.Block, body io.Reader, sum uint64) error {
	if err := t.traffic.reads.carry(ctx, b.Len()); err != nil {
		return err
	}
	defer t.traffic.reads.carried(b.Len())
	var err error
	got := 0
	h := xxh3.New()
	for p := b.Bytes(); len(p) > 0 && err == nil; {
		var n int
		n, err = body.Read(p[:min(len(p), readBytes)])
		_, _ = h.Write(p[:n])
		p, got = p[n:], got+n
	}
	if errors.Is(err, io.EOF) {
		err = nil // with the last bytes, or too early
	}
	t.count.received.Add(uint64(got))
	switch {
	case err != nil:
	case got < b.Len():
		err = io.ErrUnexpectedEOF
	case !atEnd(body):
		err = &Error{Op: "get", Err: errLength}
	case h.Sum64() != sum:
		err = &Error{Op: "get", Err: tier.ErrCorrupt}
	default:
		b.SealSum(sum)
		return nil
	}
	t.count.wasted.Add(uint64(got))
	return err
}

// atEnd reports whether nothing follows.
func atEnd(r io.Reader) bool {
	var one [1]byte
	n, err := io.ReadFull(r, one[:])
	return n == 0 && errors.Is(err, io.EOF)
}

// opened is the answer to a get before its body.
type opened struct {
	out   *s3.GetObjectOutput
	err   error
	hedge bool
	end   context.CancelFunc
}

// open asks for k, and once more if the answer is late and the allowance is
// there. done ends what open began; call it when the body is read.
func (t *Tier) open(ctx context.Context, api *client, k key.Key) (out *s3.GetObjectOutput, done func(), err error) {
	start := time.Now()
	answers := make(chan opened, 2)
	var ends []context.CancelFunc // of both requests
	ask := func(hedge bool) {
		ctx, end := context.WithCancel(ctx)
		ends = append(ends, end)
		go func() {
			out, err := api.GetObject(ctx, &s3.GetObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.object(k))})
			answers <- opened{out, err, hedge, end}
		}()
	}
	ask(false)
	late := t.lateness()
	defer late.Stop()
	var first opened
	waiting := 1
	for first.out == nil && waiting > 0 {
		select {
		case first = <-answers:
			waiting--
		case <-late.C:
			if t.hedges.take() {
				t.count.hedges.Add(1)
				t.count.gets.Add(1)
				waiting++
				ask(true)
			}
		}
	}
	if first.err == nil {
		t.latency.add(time.Since(start))
		t.hedges.earn()
	}
	if first.hedge && first.err == nil {
		t.count.hedgesWon.Add(1)
	}
	if waiting > 0 { // the other one is not wanted any more
		for i, end := range ends {
			if (i == 1) != first.hedge {
				end()
			}
		}
		loser := <-answers
		if loser.out != nil {
			loser.out.Body.Close()
		}
	}
	done = func() {
		for _, end := range ends {
			end()
		}
	}
	if first.err != nil {
		done()
	}
	return first.out, done, first.err
}

// lateness is a timer for when a get is late; stopped if none ever is.
func (t *Tier) lateness() *time.Timer {
	after, ok := t.latency.hedgeAfter()
	timer := time.NewTimer(after)
	if !ok {
		timer.Stop()
	}
	return timer
}
