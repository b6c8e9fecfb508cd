package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/kvstored/kvstored/tier"
)

// Put implements tier.Tier. The store itself sees to it that the first of two
// machines wins; where it cannot it is asked first. The tier asks
// for a chunk that is probably there before it sends it, because asking is cheap. Payloads are at most
// arena.MaxPayload, 64 MiB: one request each, never several parts.
func (t *Tier) Put(ctx context.Context, e tier.Entry) error {
	if err := t.usable(ctx, "put"); err != nil {
		return err
	}
	if t.readOnly.Load() {
		return &Error{Op: "put", Err: errReadOnly}
	}
	if t.known.has(e.Key) && !t.absent.has(e.Key) {
		there, err := t.present(ctx, &e)
		if there || err != nil {
			return err
		}
	}
	return t.putNew(ctx, &e)
}

// putNew stores e unless it is there.
func (t *Tier) putNew(ctx context.Context, e *tier.Entry) error {
	unknown := false // conditions, to the store
	if !t.unconditional.Load() {
		err := t.send(ctx, e, true)
		switch status := statusOf(err); {
		case err == nil:
			t.doubts.Store(0)
			return nil
		case status == http.StatusPreconditionFailed: // the object may be too old, or no chunk
			t.doubts.Store(0)
		case status == http.StatusNotImplemented:
			t.dropConditions()
		case refusesCondition(err):
			unknown = true
		default:
			return err
		}
	}
	if there, err := t.present(ctx, e); there || err != nil {
		return err
	}
	err := t.send(ctx, e, false)
	if err == nil && unknown && t.doubts.Add(1) == mostDoubts {
		t.dropConditions()
	}
	return err
}

// mostDoubts chunks in succession are stored only without the condition where the store
// knows none, though it does not say so. One may meet the put of another machine.
const mostDoubts = 3

func (t *Tier) dropConditions() {
	t.unconditional.Store(true)
	t.log.Warn().Msg("the store knows no conditional puts; each put asks first whether the object is there")
}

// refusesCondition reports whether a conditional put may have failed for its
// condition: 501 says so, others answer 400, or 409 however often they are asked.
func refusesCondition(err error) bool {
	switch statusOf(err) {
	case http.StatusNotImplemented, http.StatusBadRequest, http.StatusConflict:
		return !refusesLogin(err)
	}
	return false
}

// present reports whether e is there already. An object of its name that cannot
// be it is an error. Other bytes of the same length are not: KV tensors are not
// bit-reproducible, and the first ones stay.
func (t *Tier) present(ctx context.Context, e *tier.Entry) (bool, error) {
	out, err := t.head(ctx, writes, e.Key)
	if out == nil || err != nil {
		return false, err
	}
	r, _, err := parseMetadata(out.Metadata)
	length := int64(r.Size)
	if out.ContentLength != nil {
		length = *out.ContentLength
	}
	switch {
	case err != nil || r.Key != e.Key:
		return true, t.occupied(e, errForeign)
	case r.Size != e.Size || length != int64(e.Size):
		return true, t.occupied(e, fmt.Errorf("%d bytes, said to be %d, instead of %d", length, r.Size, e.Size))
	case r.Sum != e.Sum:
		t.count.otherBytes.Add(1)
	}
	t.count.present.Add(1)
	t.markPresent(e)
	return true, nil
}

// occupied is the error of a put whose name something else has. Who put it
// there may want it, so that it is left alone.
func (t *Tier) occupied(e *tier.Entry, what error) error {
	t.count.occupied.Add(1)
	err := fmt.Errorf("%w: what has the chunk's name cannot be it: %w", tier.ErrCorrupt, what)
	t.log.Error().Err(err).Str("object", t.names.object(e.Key)).Msg("a chunk cannot be stored; delete the object, or find out who uses the same prefix")
	return &Error{Op: "put", Err: err}
}

// markPresent notes that e is there.
func (t *Tier) markPresent(e *tier.Entry) {
	t.known.add(e.Key)
	t.absent.remove(e.Key)
}

// send stores e, with a body that goes from the block to the socket.
func (t *Tier) send(ctx context.Context, e *tier.Entry, ifNone bool) error {
	write := kind{op: "put", count: &t.count.puts, direction: writes, bytes: int(e.Size)}
	err := t.request(ctx, write, func(ctx context.Context, api *s3.Client) error {
		in := &s3.PutObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.object(e.Key)), Metadata: metadata(&e.Record, t.o.Ages.Of(e.Key))}
		if ifNone {
			in.IfNoneMatch = aws.String("*")
		}
		n, err := t.sendObject(ctx, api, in, e.Block.Bytes(), t.summed.Load())
		t.count.sent.Add(n)
		if err != nil {
			t.count.wasted.Add(n)
		}
		return err
	})
	if err == nil {
		t.markPresent(e)
		t.count.stored.Add(1)
		t.count.storedBytes.Add(uint64(e.Size))
	}
	return err
}

// errDetached is what reads of a body get when its block may be gone.
var errDetached = errors.New("the request was given up")

// body is a borrowed payload on its way out. The HTTP client may still read
// for a moment after a request was given up: detach ends that.
type body struct {
	mu   sync.Mutex // guards all; held while a piece is copied
	p    []byte     // nil: detached
	at   int64
	sent uint64
}

func (b *body) Read(dst []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.p == nil:
		return 0, errDetached
	case b.at >= int64(len(b.p)):
		return 0, io.EOF
	}
	n := copy(dst, b.p[b.at:])
	b.at += int64(n)
	b.sent += uint64(n)
	return n, nil
}

// Seek lets the SDK find out the length.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += int64(len(b.p))
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of a payload")
	}
	b.at = offset
	return offset, nil
}

// detach makes further reads fail and returns how many bytes were read.
func (b *body) detach() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.p = nil
	return b.sent
}
