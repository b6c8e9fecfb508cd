package remote

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/tier"
)

const (
	// maxTries bounds one operation, first try included.
	maxTries = 3
	// retryPause is the mean pause before the first retry; it doubles.
	retryPause = 50 * time.Millisecond
	// retryShare is how many retries one request pays for, retrySaved how many
	// can be saved up: a store in trouble sees a tenth more requests, not three
	// times as many.
	retryShare = 0.1
	retrySaved = 10
	// When the store says SlowDown no request is sent for slowPause, then twice as
	// long, up to slowPauseMax; each request that succeeds halves it.
	slowPause    = 100 * time.Millisecond
	slowPauseMax = 5 * time.Second
)

// kind describes a request.
type kind struct {
	op        string
	count     *atomic.Uint64
	direction direction
	bytes     int // of payload to send
}

// request makes one request, again where that may help and the budget allows.
// Each try is counted and has its own deadline.
func (t *Tier) request(ctx context.Context, k kind, send func(context.Context, *s3.Client) error) error {
	for try := 1; ; try++ {
		err := t.once(ctx, k, send)
		if err == nil || isRoom(err) || ctx.Err() != nil || try == maxTries || !retriable(err) || !t.retries.take() {
			return err
		}
		t.count.retries.Add(1)
		pause := retryPause << (try - 1)
		if err := base.Sleep(ctx, pause/2+rand.N(pause)); err != nil {
			return &Error{Op: k.op, Err: err}
		}
	}
}

// once makes one request.
func (t *Tier) once(ctx context.Context, k kind, send func(context.Context, *s3.Client) error) error {
	lane := t.traffic[k.direction]
	if t.login.refused.Load() {
		if err := t.relogin(ctx); err != nil {
			return err
		}
	}
	c, err := t.api(ctx)
	if err == nil {
		err = t.slow.wait(ctx)
	}
	if err == nil {
		err = lane.enter(ctx, k.bytes)
	}
	if err != nil {
		return &Error{Op: k.op, Err: cause(ctx, err)}
	}
	defer lane.leave(k.bytes)
	t.retries.earn()
	k.count.Add(1)
	limited, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, errTimeout)
	defer cancel()
	err = t.judge(limited, k.op, send(limited, c.api[k.direction]))
	switch {
	case refusesLogin(err) && t.client.Load() == c:
		t.login.refuse(time.Now())
	case errors.Is(err, errReadOnly):
		t.setReadOnly(true)
	case err == nil, isRoom(err):
		t.slow.less()
	case slowDown(err):
		t.count.slowDowns.Add(1)
		t.slow.more()
	}
	return err
}

// judge makes our error of the SDK's. A deadline of ours is no end of the
// caller's patience.
func (t *Tier) judge(limited context.Context, op string, err error) error {
	if err == nil {
		return nil
	}
	var own *Error
	if isRoom(err) || errors.As(err, &own) {
		return err
	}
	out := failure(op, err)
	var e *Error
	if errors.As(out, &e) && e.Status == 0 {
		switch {
		case limited.Err() != nil:
			e.Err = cause(limited, limited.Err())
		case errors.Is(e.Err, context.Canceled):
			e.Err = errBroken // the connection went with the request before, which was cancelled
		}
	}
	return out
}

// cause is why ctx ended, if it has, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if c := context.Cause(ctx); errors.Is(c, errTimeout) {
		return errTimeout
	}
	return ctx.Err()
}

func isNotFound(err error) bool { return errors.Is(err, tier.ErrNotFound) }

// allowance lets extra requests be made in proportion to the others.
type allowance struct {
	share, most float64
	mu          struct {
		sync.Mutex
		saved float64
	}
}

func newAllowance(share, most float64) *allowance {
	a := &allowance{share: share, most: most}
	a.mu.saved = most
	return a
}

// earn counts an ordinary request.
func (a *allowance) earn() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.saved = min(a.mu.saved+a.share, a.most)
}

// take pays for an extra one, if there is enough.
func (a *allowance) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.saved < 1 {
		return false
	}
	a.mu.saved--
	return true
}

// slowness is the pause that the store has asked for.
type slowness struct {
	mu struct {
		sync.Mutex
		pause time.Duration // 0 = none
		until time.Time
	}
}

// wait lets the pause pass.
func (s *slowness) wait(ctx context.Context) error {
	s.mu.Lock()
	d := time.Until(s.mu.until)
	s.mu.Unlock()
	if d <= 0 {
		return nil
	}
	return base.Sleep(ctx, d)
}

// more follows one SlowDown; those of requests made before the pause began
// count once.
func (s *slowness) more() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.mu.until) {
		return
	}
	s.mu.pause = min(max(2*s.mu.pause, slowPause), slowPauseMax)
	s.mu.until = time.Now().Add(s.mu.pause)
}

func (s *slowness) less() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.pause /= 2; s.mu.pause < slowPause/2 {
		s.mu.pause = 0
	}
}

// The most that is taken of an answer: of its header, of an error, of anything else
// but the payload of a get. A list of 1000 names has some hundred KiB; the SDK takes 30 times
// the bytes of elements that lie deep in each other.
const (
	maxHeaderBytes = 64 << 10
	maxErrorBytes  = 64 << 10
	maxAnswerBytes = 2 << 20
)

var errTooLong = errors.New("the answer is longer than any of a store")

// bounded bounds the answers to all requests of the SDK. It is middleware because
// the SDK makes clients of its own for credentials, and these read answers whole too.
func bounded(stack *middleware.Stack) error {
	bound := func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
		out, about, err := next.HandleDeserialize(ctx, in)
		resp, ok := out.RawResponse.(*smithyhttp.Response)
		switch {
		case !ok || resp.Body == nil:
		case resp.StatusCode != http.StatusOK:
			resp.Body = &boundedBody{resp.Body, maxErrorBytes}
		case stack.ID() != "GetObject":
			resp.Body = &boundedBody{resp.Body, maxAnswerBytes}
		}
		return out, about, err
	}
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("bounded", bound), middleware.After)
}

// boundedBody fails once more than left bytes would be read.
type boundedBody struct {
	io.ReadCloser
	left int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLong
	}
	return n, err
}
