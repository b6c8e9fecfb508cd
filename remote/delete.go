package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// deleteBatch is how many objects one request may name.
const deleteBatch = 1000

// Delete implements tier.Tier, a thousand keys a request.
func (t *Tier) Delete(ctx context.Context, ks []key.Key) error {
	if err := t.usable(ctx, "delete"); err != nil {
		return err
	}
	for part := range slices.Chunk(ks, deleteBatch) {
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
	return t.request(ctx, kind{op: "delete", count: &t.count.deletes, direction: writes}, func(ctx context.Context, api *s3.Client) error {
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

// Purge implements tier.Shared: it lists a page of a space and deletes it, a
// thousand objects at most. Every object with a name below the space goes, chunk
// or not.
func (t *Tier) Purge(ctx context.Context, id key.SpaceID, after string, dry bool, gone func(key.Key)) (p tier.Purged, err error) {
	if err := t.usable(ctx, "purge"); err != nil {
		return p, err
	}
	space := t.names.space(id)
	in := &s3.ListObjectsV2Input{Bucket: &t.o.Bucket, Prefix: &space}
	if after != "" {
		in.StartAfter = aws.String(space + after)
	}
	page, err := t.page(ctx, in)
	if err == nil {
		_, err = further(aws.ToString(in.StartAfter), page)
	}
	if err != nil || len(page.Contents) == 0 {
		return p, err
	}
	objects := make([]types.ObjectIdentifier, len(page.Contents))
	for i := range page.Contents {
		objects[i].Key = page.Contents[i].Key
		p.Bytes += uint64(aws.ToInt64(page.Contents[i].Size))
	}
	if !dry {
		if err := t.deleteNames(ctx, objects); err != nil {
			return tier.Purged{}, err
		}
		t.markAbsent(objects, gone)
	}
	p.Found = uint64(len(objects))
	if aws.ToBool(page.IsTruncated) {
		p.Next = strings.TrimPrefix(aws.ToString(objects[len(objects)-1].Key), space)
	}
	return p, nil
}

// markAbsent notes that objects are gone, and tells gone of those that were chunks.
func (t *Tier) markAbsent(objects []types.ObjectIdentifier, gone func(key.Key)) {
	for i := range objects {
		if k, ok := t.names.key(aws.ToString(objects[i].Key)); ok {
			t.absent.add(k)
			gone(k)
		}
	}
}

// mostEmpty pages in succession may list nothing, as of a bucket with many versions that
// are deleted.
const mostEmpty = 1000

// list hands over the objects whose names start with prefix, page by page.
func (t *Tier) list(ctx context.Context, prefix string, page func([]types.Object) error) error {
	in := &s3.ListObjectsV2Input{Bucket: &t.o.Bucket, Prefix: &prefix}
	last, empty := "", 0
	for {
		out, err := t.page(ctx, in)
		if err == nil {
			last, err = further(last, out)
		}
		if err != nil {
			return err
		}
		if len(out.Contents) > 0 {
			empty = 0
		} else if empty++; empty > mostEmpty {
			return &Error{Op: "list", Err: errors.New("the store says again and again that there is more, and lists nothing")}
		}
		if err := page(out.Contents); err != nil {
			return err
		}
		if !aws.ToBool(out.IsTruncated) || out.NextContinuationToken == nil {
			return nil
		}
		in.ContinuationToken = out.NextContinuationToken
	}
}

// further returns the last name of a page of a listing, and an error where that is not
// behind the name that the pages before it end with: such a listing may never end.
func further(last string, page *s3.ListObjectsV2Output) (string, error) {
	if len(page.Contents) == 0 {
		return last, nil
	}
	name := aws.ToString(page.Contents[len(page.Contents)-1].Key)
	if name <= last {
		return last, &Error{Op: "list", Err: fmt.Errorf("the store lists %s behind %s: it must list names in order, each once", name, last)}
	}
	return name, nil
}

// page reads one page of a listing.
func (t *Tier) page(ctx context.Context, in *s3.ListObjectsV2Input) (out *s3.ListObjectsV2Output, err error) {
	err = t.request(ctx, kind{op: "list", count: &t.count.lists, direction: reads}, func(ctx context.Context, api *s3.Client) (err error) {
		out, err = api.ListObjectsV2(ctx, in)
		return err
	})
	return out, err
}
