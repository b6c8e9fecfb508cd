package remote

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// A canary is put and read back at Connect, and every canaryEvery in which the store was
// used or is read only. Run deletes it at its end, which takes canaryPatience at most.
const (
	canaryEvery    = 5 * time.Minute
	canaryPatience = time.Second
	canaryBytes    = 16
)

// The ways in which a store, or a proxy before it, answers well and is of no use.
var (
	errNoTag    = errors.New("the answer to a put has no ETag: no S3 store gave it, or a proxy keeps answers back")
	errAnyName  = errors.New("an object that is not there is answered with 200: no S3 store is there, or a proxy answers for it")
	errMetadata = errors.New("objects come back without the metadata that they were put with (x-amz-meta-kvstored-...): the store, or a proxy before it, drops it")
	errOther    = errors.New("objects come back with other bytes than they were put with")
)

// What the credentials may not do. Nothing else is wrong with the tier.
const (
	errReadOnly = right("read only: the credentials may not put objects; what is there is read")
	errKeeps    = right("the credentials may not delete objects")
)

// right is an error of a call that counts as [tier.ErrOff], though the tier is on.
type right string

func (r right) Error() string        { return string(r) }
func (r right) Is(target error) bool { return target == tier.ErrOff }

// canary says what the store keeps of an object: the metadata, the bytes, and whether it takes
// any. A bucket that these credentials may only read is no error.
func (t *Tier) canary(ctx context.Context, c *client) error {
	err := t.putCanary(ctx, c)
	if errors.Is(err, errReadOnly) {
		t.setReadOnly(true)
		return nil
	}
	t.setReadOnly(false)
	if err == nil {
		err = t.getCanary(ctx, c)
	}
	if useless(err) { // Run knows no client of a store that is of no use
		t.removeCanary(ctx, c)
	}
	return err
}

func (t *Tier) setReadOnly(is bool) {
	if t.readOnly.Swap(is) != is && is {
		t.log.Warn().Str("bucket", t.o.Bucket).Msg("the remote tier is read only: the store answers 403 to puts; what is there is still read")
	}
}

// putCanary puts it, and learns whether the store asks for a checksum.
func (t *Tier) putCanary(ctx context.Context, c *client) error {
	body := make([]byte, canaryBytes)
	_, _ = rand.Read(body) // never fails
	r := tier.Record{Key: canaryKey(body), Size: canaryBytes, Sum: xxh3.Hash(body)}
	put := func(summed bool) error {
		t.count.puts.Add(1)
		in := &s3.PutObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.canaryName()), Metadata: metadata(&r, stale.Expiry{})}
		_, err := t.sendObject(ctx, c.api[writes], in, body, summed)
		return t.judge(ctx, "put", err)
	}
	err := put(t.summed.Load())
	if statusOf(err) == http.StatusBadRequest && !t.summed.Load() && put(true) == nil {
		t.summed.Store(true)
		return nil
	}
	return err
}

// canaryKey makes a key of the bytes: of two daemons with one id each finds the canary of the
// other sound.
func canaryKey(body []byte) (k key.Key) {
	sum := xxh3.Hash128(body)
	binary.BigEndian.PutUint64(k.Hash[:], sum.Hi)
	return k
}

func (t *Tier) canaryName() string { return t.names.root + "canary/" + t.o.ID }

// getCanary reads it and compares.
func (t *Tier) getCanary(ctx context.Context, c *client) error {
	t.count.gets.Add(1)
	out, err := c.api[reads].GetObject(ctx, &s3.GetObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.canaryName())})
	if err != nil {
		return t.judge(ctx, "get", err)
	}
	defer out.Body.Close()
	body, err := io.ReadAll(io.LimitReader(out.Body, 2*canaryBytes))
	if err != nil {
		return t.judge(ctx, "get", err)
	}
	r, _, err := parseMetadata(out.Metadata)
	switch {
	case err != nil:
		return &Error{Op: "get", Err: errMetadata}
	case r.Size != uint32(len(body)) || r.Sum != xxh3.Hash(body) || r.Key != canaryKey(body):
		return &Error{Op: "get", Err: errOther}
	}
	return nil
}

// useless reports whether an error says that chunks are lost in the store, which else
// answers.
func useless(err error) bool {
	return isAny(err, errNoTag, errAnyName, errMetadata, errOther, tier.ErrNotFound) != nil
}

// ProbeNow implements tier.Prober: a bucket that was read only is tried with the next put.
func (t *Tier) ProbeNow() { t.readOnly.Store(false) }

// watch tries the store with the canary until ctx ends, or until it is of no use any more.
func (t *Tier) watch(ctx context.Context) error {
	tick := time.NewTicker(canaryEvery)
	defer tick.Stop()
	used := t.uses()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.login.asked:
			if err := t.relogin(ctx); err != nil && ctx.Err() == nil {
				t.log.Error().Err(err).Msg("what the files of the remote tier's credentials and certificates say now cannot be used; it goes on as before")
			}
			continue
		case <-tick.C:
		}
		if t.uses() == used && !t.readOnly.Load() { // puts into a bucket that is read only are no uses
			continue
		}
		if err := t.tryCanary(ctx); useless(err) {
			return err
		}
		used = t.uses()
	}
}

// uses counts the requests for objects.
func (t *Tier) uses() uint64 {
	return t.count.puts.Load() + t.count.gets.Load() + t.count.heads.Load()
}

// tryCanary is canary of a tier that is connected. What a breaker sees too is not
// told twice.
func (t *Tier) tryCanary(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, t.o.Timeout, errTimeout)
	defer cancel()
	c, err := t.api(ctx)
	if err == nil {
		err = t.canary(ctx, c)
	}
	return err
}

// removeCanary deletes it where there may be one.
func (t *Tier) removeCanary(ctx context.Context, c *client) {
	if c == nil || t.readOnly.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), canaryPatience)
	defer cancel()
	t.count.deletes.Add(1)
	_, err := c.api[writes].DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &t.o.Bucket, Key: aws.String(t.canaryName())})
	if err != nil {
		t.log.Debug().Err(t.judge(ctx, "delete", err)).Msg("the object with which the store was tried stays")
	}
}

// sendObject puts bytes, with a checksum of S3's where the store asks for one (as a
// bucket with a default retention does), and returns how many of them were sent. An answer
// that no S3 store gave is an error.
func (t *Tier) sendObject(ctx context.Context, api *s3.Client, in *s3.PutObjectInput, p []byte, summed bool) (sent uint64, err error) {
	b := &body{p: p}
	in.Body, in.ContentLength, in.ContentType = b, aws.Int64(int64(len(p))), aws.String("application/octet-stream")
	if summed {
		sum := binary.BigEndian.AppendUint32(nil, crc32.Checksum(p, crc32.MakeTable(crc32.Castagnoli)))
		in.ChecksumCRC32C = aws.String(base64.StdEncoding.EncodeToString(sum))
	}
	out, err := api.PutObject(ctx, in, unsigned)
	if err == nil && aws.ToString(out.ETag) == "" {
		err = &Error{Op: "put", Err: errNoTag}
	}
	return b.detach(), err
}
