package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
)

// bare is the SDK's client as it comes, reading into memory it uses again.
type bare struct {
	api     *s3.Client
	buffers chan []byte
}

func newBare(endpoint string) *bare {
	b := &bare{buffers: make(chan []byte, *concurrency)}
	for range *concurrency {
		b.buffers <- nil
	}
	b.api = s3.New(s3.Options{
		BaseEndpoint: &endpoint, Region: s3test.Region, UsePathStyle: true,
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: s3test.AccessKey, SecretAccessKey: s3test.SecretKey}, nil
		}),
	})
	return b
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
	buf := <-b.buffers
	if len(buf) < size {
		buf = make([]byte, size)
	}
	_, err = io.ReadFull(out.Body, buf[:size])
	b.buffers <- buf
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
