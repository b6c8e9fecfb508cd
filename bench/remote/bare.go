package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/s3test"
	"github.com/kvstored/kvstored/key"
)

// bare is the SDK's client as it comes, reading into memory it uses again.
type bare struct {
	api     *s3.Client
	buffers sync.Pool
}

func newBare(endpoint string) *bare {
	return &bare{api: s3.New(s3.Options{
		BaseEndpoint: &endpoint, Region: s3test.Region, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3test.AccessKey, SecretAccessKey: s3test.SecretKey}, nil
		}),
	})}
}

func name(k key.Key) *string {
	return aws.String("kvstored/v1/" + hex.EncodeToString(k.Space[:]) + "/" + hex.EncodeToString(k.Hash[:1]) + "/" + hex.EncodeToString(k.Hash[:]))
}

func (b *bare) put(ctx context.Context, k key.Key, p []byte) error {
	_, err := b.api.PutObject(ctx, &s3.PutObjectInput{Bucket: aws.String(s3test.Bucket), Key: name(k), Body: bytes.NewReader(p)})
	return err
}

func (b *bare) get(ctx context.Context, k key.Key, size int) error {
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{Bucket: aws.String(s3test.Bucket), Key: name(k)})
	if err != nil {
		return err
	}
	defer out.Body.Close()
	buf, ok := b.buffers.Get().(*[]byte)
	if !ok || len(*buf) < size {
		buf = new([]byte)
		*buf = make([]byte, size)
	}
	defer b.buffers.Put(buf)
	_, err = io.ReadFull(out.Body, (*buf)[:size])
	return err
}

// parallel does do for 0..n, so many at a time as the flag says.
func parallel(ctx context.Context, n int, do func(context.Context, int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(*concurrency)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}
