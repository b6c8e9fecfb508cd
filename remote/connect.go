package remote

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/kvstored/kvstored/tier"
)

// A store that does not answer, or not to us, is asked again after
// connectPause, then after twice as long, up to connectPauseMax.
const (
	connectPause    = time.Second
	connectPauseMax = 30 * time.Second
)

// Run connects, trying until it succeeds, and then reads the names of all
// objects if Options.List says so, and credentials where Reload asks for that. It
// returns when ctx ends.
func (t *Tier) Run(ctx context.Context) error {
	defer func() { t.removeCanary(ctx, t.client.Load()) }()
	list := t.o.List
	for {
		if err := t.connect(ctx); err != nil {
			return err
		}
		if list {
			t.loadAll(ctx)
			list = false
		}
		err := t.watch(ctx)
		if ctx.Err() != nil {
			return err
		}
		t.log.Error().Err(err).Msg("the store is of no use any more; the daemon serves without it until it is")
		t.why.Store(&err)
		t.client.Swap(nil).closeIdle()
	}
}

// loadAll reads the names of all objects, for Find.
func (t *Tier) loadAll(ctx context.Context) {
	n, err := t.loadNames(ctx)
	if err != nil && ctx.Err() == nil {
		t.log.Warn().Err(err).Msg("the objects could not be listed to the end; what is there is found all the same, in more requests")
	}
	t.log.Info().Int("objects", n).Msg("remote tier listed")
}

// connect tries until Connect succeeds.
func (t *Tier) connect(ctx context.Context) error {
	for pause := connectPause; ; pause = min(2*pause, connectPauseMax) {
		err := t.Connect(ctx)
		if err == nil {
			t.log.Info().Str("bucket", t.o.Bucket).Bool("read_only", t.readOnly.Load()).Msg("remote tier ready")
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		t.log.Error().Err(err).Stringer("again_in", pause).Msg("the remote tier cannot be used; the daemon serves without it")
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		case <-t.login.asked:
		}
	}
}

// Connect makes the client, asks the store for an object that is not there, and
// tries whether it keeps one. A client that there was stays until that is over.
func (t *Tier) Connect(ctx context.Context) error {
	if t.closed.Load() {
		return &Error{Op: "connect", Err: tier.ErrClosed}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, errTimeout)
	defer cancel()
	c, err := newClient(ctx, t.o)
	if err == nil {
		err = t.try(ctx, c)
	}
	if err != nil {
		t.why.Store(&err)
		t.count.connectFailed.Add(1)
		if c != nil {
			c.closeIdle()
		}
		return err
	}
	if old := t.client.Swap(c); old != nil {
		old.closeIdle()
	}
	t.login.proved(time.Now())
	return nil
}

// try is an error unless the store says of an object that is not there just that, which
// it does where bucket and credentials are right, and gives back an object as it was put.
func (t *Tier) try(ctx context.Context, c *client) error {
	t.count.gets.Add(1)
	out, err := c.api[reads].GetObject(ctx, &s3.GetObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.names.root + "nothing")})
	if err == nil {
		out.Body.Close()
		return &Error{Op: "connect", Err: errAnyName}
	}
	if err = t.judge(ctx, "connect", err); !isNotFound(err) {
		return err
	}
	return t.canary(ctx, c)
}

// loadNames reads the names of all objects into the Bloom filter.
func (t *Tier) loadNames(ctx context.Context) (n int, err error) {
	err = t.list(ctx, t.names.root, func(page []types.Object) error {
		for i := range page {
			if k, ok := t.names.key(aws.ToString(page[i].Key)); ok && !t.expired(page[i].LastModified) {
				t.known.add(k)
				n++
			}
		}
		return nil
	})
	return n, err
}

// Check tries everything the tier needs with the canary: put, get, put again, list and
// delete. It returns notes for the operator, what the bucket is good for last.
func (t *Tier) Check(ctx context.Context) (notes []string, err error) {
	if err := t.Connect(ctx); err != nil {
		return nil, err
	}
	if t.readOnly.Load() {
		return []string{fmt.Sprintf("bucket %s is read only: the store answers 403 to puts; what others store is read", t.o.Bucket)}, nil
	}
	name := aws.String(t.canaryName())
	defer func() {
		if derr := t.deleteNames(ctx, []types.ObjectIdentifier{{Key: name}}); err == nil {
			err = derr
		}
	}()
	again := t.request(ctx, kind{op: "put", count: &t.count.puts, direction: writes}, func(ctx context.Context, api *s3.Client) error {
		in := &s3.PutObjectInput{Bucket: &t.o.Bucket, Key: name, IfNoneMatch: aws.String("*")}
		_, err := t.sendObject(ctx, api, in, make([]byte, canaryBytes), t.summed.Load())
		return err
	})
	switch {
	case again == nil:
		notes = []string{"conditional puts are not obeyed: of two machines that store the same chunk both send it"}
	case refusesCondition(again):
		notes = []string{"no conditional puts: each put asks first"}
	case statusOf(again) != http.StatusPreconditionFailed:
		return nil, again
	}
	notes = append(notes, fmt.Sprintf("bucket %s can be read, written, listed and deleted from", t.o.Bucket))
	return notes, t.list(ctx, t.names.root+"canary/", func([]types.Object) error { return nil })
}
