package remote

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

func testOptions(endpoint string) Options {
	return Options{
		Bucket: s3test.Bucket, Prefix: "kvstored", Endpoint: endpoint, Region: s3test.Region, PathStyle: true,
		Timeout: time.Minute, Log: zerolog.Nop(),
	}
}

// connect opens a tier for one test.
func connect(t testing.TB, o Options) *Tier {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// memory is an arena that must be empty at the end of the test.
func memory(t testing.TB, capacity int64) tiertest.Allocator {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: capacity})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := a.Stats().Blocks; n != 0 {
			t.Errorf("%d blocks were not given back", n)
			return
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return tiertest.Allocator{Arena: a}
}

// put stores chunks from..to of c with n bytes each.
func put(t testing.TB, r tier.Tier, m tiertest.Allocator, c *key.Chain, from, to, n int) {
	t.Helper()
	for i := from; i < to; i++ {
		e := tiertest.NewEntry(t, m.Arena, c, i, n)
		if err := r.Put(t.Context(), e); err != nil {
			t.Fatalf("put chunk %d: %v", i, err)
		}
		e.Block.Release()
	}
}

// get reads a chunk and compares its bytes.
func get(t testing.TB, r tier.Tier, m tiertest.Allocator, k key.Key) error {
	t.Helper()
	b, err := r.Get(t.Context(), k, m)
	if err != nil {
		return err
	}
	defer b.Release()
	return tiertest.CheckPayload(k, b.Bytes())
}
