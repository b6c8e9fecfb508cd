package remote

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/kvstored/kvstored/key"
)

// deleteBatch is how many objects one request may name.
const deleteBatch = 1000

// Delete implements tier.Tier, a thousand keys a request.
func (t *Tier) Delete(ctx context.Context, ks []key.Key) error {
	if err := t.usable(ctx, "delete"); err != nil {
		return err
	}
	for len(ks) > 0 {
		part := ks[:min(deleteBatch, len(ks))]
		ks = ks[len(part):]
		objects := make([]types.ObjectIdentifier, len(part))
		for i, k := range part {
			objects[i].Key = aws.String(t.names.object(k))
		}
		if err := t.deleteNames(ctx, objects); err != nil {
			return err
		}
		for _, k := range part {
			t.absent.add(k)
		}
	}
	return nil
}

func (t *Tier) deleteNames(ctx context.Context, objects []types.ObjectIdentifier) error {
	return t.request(ctx, kind{op: "delete", count: &t.count.deletes, lane: t.traffic.writes}, func(ctx context.Context, api *client) error {
		out, err := api.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: &t.o.Bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(true)},
		})
		if err != nil {
			return err
		}
		for _, e := range out.Errors {
			if code := aws.ToString(e.Code); code != "NoSuchKey" {
				return &Error{Op: "delete", Code: word(code)}
			}
		}
		return nil
	})
}

// Purge implements tier.Shared: it deletes every object of a space, whoever
// stored it.
func (t *Tier) Purge(ctx context.Context, id key.SpaceID) (n int, err error) {
	err = t.list(ctx, t.names.space(id), func(page []types.Object) error {
		objects := make([]types.ObjectIdentifier, len(page))
		for i := range page {
			objects[i].Key = page[i].Key
			if k, ok := t.names.key(aws.ToString(page[i].Key)); ok {
				t.absent.add(k)
			}
		}
		n += len(page)
		return t.deleteNames(ctx, objects)
	})
	return n, err
}

// list hands over the objects whose names start with prefix, page by page.
func (t *Tier) list(ctx context.Context, prefix string, page func([]types.Object) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &t.o.Bucket, Prefix: &prefix}
	for {
		var out *s3.ListObjectsV2Output
		err := t.request(ctx, kind{op: "list", count: &t.count.lists, lane: t.traffic.reads}, func(ctx context.Context, api *client) (err error) {
			out, err = api.ListObjectsV2(ctx, in)
			return err
		})
		if err != nil {
			return err
		}
		if len(out.Contents) > 0 {
			if err := page(out.Contents); err != nil {
				return err
			}
		}
		if !aws.ToBool(out.IsTruncated) || out.NextContinuationToken == nil {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}
