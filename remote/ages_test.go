package remote

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/test/s3test"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// expiring puts chunk i of c with an expiry, as a host with another clock would.
func expiring(t *testing.T, r *Tier, m tiertest.Allocator, c *key.Chain, i int, s stale.Expiry) {
	t.Helper()
	e := tiertest.NewEntry(t, m.Arena, c, i, 4*kib)
	defer e.Block.Release()
	write := kind{op: "put", count: &r.count.puts, direction: writes, bytes: int(e.Size)}
	if err := r.request(t.Context(), write, func(ctx context.Context, api *s3.Client) error {
		_, err := api.PutObject(ctx, &s3.PutObjectInput{
			Bucket: &r.o.Bucket, Key: aws.String(r.names.object(e.Key)), Metadata: metadata(&e.Record, s), Body: bytes.NewReader(e.Block.Bytes()),
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestAgesOfTwoHosts: a chunk that one host stores with a TTL the other does not use
// longer; it finds out by asking, or by reading. A chunk that has expired gives way to a new one.
func TestAgesOfTwoHosts(t *testing.T) {
	virtual(t, func(t *testing.T, server *s3test.Memory, m tiertest.Allocator) {
		host := func() *Tier {
			o := virtualOptions(server)
			o.Ages = stale.New()
			return connect(t, o)
		}
		a, c := host(), tiertest.Chain(1, 4)
		now := uint32(time.Now().Unix())
		alive, expired, ahead := stale.Expiry{Stored: now - 10, Expires: now + 3600}, stale.Expiry{Stored: now - 100, Expires: now}, stale.Expiry{Stored: now + 3600, Expires: now + 7200}
		expiring(t, a, m, c, 0, alive)
		expiring(t, a, m, c, 1, expired)
		expiring(t, a, m, c, 2, ahead)
		put(t, a, m, c, 3, 4, 4*kib)

		for name, ask := range map[string]func(b *Tier, i int) bool{
			"asked": func(b *Tier, i int) bool {
				have := make([]bool, 1)
				if err := b.Contains(t.Context(), []key.Key{c.Key(i)}, have); err != nil {
					t.Fatal(err)
				}
				return have[0]
			},
			"read": func(b *Tier, i int) bool {
				err := get(t, b, m, c.Key(i))
				if err != nil && !errors.Is(err, tier.ErrNotFound) {
					t.Fatal(err)
				}
				return err == nil
			},
		} {
			b := host()
			for i, want := range []bool{true, false, false, true} {
				if got := ask(b, i); got != want {
					t.Errorf("%s: chunk %d is there: %t, want %t", name, i, got, want)
				}
			}
			if got := b.o.Ages.Of(c.Key(0)); got != alive {
				t.Errorf("%s: %+v, want %+v", name, got, alive)
			}
			if got := b.o.Ages.Of(c.Key(2)); got.HasTTL() {
				t.Errorf("%s: a chunk of a clock that is ahead is to be removed: %+v", name, got)
			}
			if ks, _ := b.o.Ages.Due(8); len(ks) > 1 || len(ks) == 1 && ks[0] != c.Key(1) {
				t.Errorf("%s: due: %v", name, ks)
			}
		}

		b := host()
		b.o.Ages.Stored(c.Space, []key.Hash{c.Hashes[1]}, time.Hour)
		fresh := b.o.Ages.Of(c.Key(1))
		put(t, b, m, c, 1, 2, 4*kib)
		d := host()
		if err := get(t, d, m, c.Key(1)); err != nil || d.o.Ages.Of(c.Key(1)) != fresh {
			t.Errorf("stored anew: %v, %+v, want %+v", err, d.o.Ages.Of(c.Key(1)), fresh)
		}

		// One that is stored anew without a TTL does not get that of the copy that has expired.
		free := host()
		expiring(t, a, m, c, 1, expired)
		put(t, free, m, c, 1, 2, 4*kib)
		for name, h := range map[string]*Tier{"the same host": free, "another host": host()} {
			if err := get(t, h, m, c.Key(1)); err != nil || h.o.Ages.Of(c.Key(1)).HasTTL() {
				t.Errorf("%s: stored anew without a TTL: %v, %+v", name, err, h.o.Ages.Of(c.Key(1)))
			}
		}

		// Without an expiry an object counts from when it was put.
		e := host()
		e.o.Ages.Open(c.Space, time.Hour)
		if err := get(t, e, m, c.Key(3)); err != nil {
			t.Error(err)
		}
		if s := e.o.Ages.Of(c.Key(3)); s.Expires != s.Stored+3600 || s.Stored+60 < now || s.Stored > now+60 {
			t.Errorf("%+v at %d", s, now)
		}
	})
}

// TestRenewedObject: an object that another host has put since is told from the one that
// has expired, also where it has no expiry; so is one that is gone.
func TestRenewedObject(t *testing.T) {
	virtual(t, func(t *testing.T, server *s3test.Memory, m tiertest.Allocator) {
		o := virtualOptions(server)
		o.Ages = stale.New()
		r, c := connect(t, o), tiertest.Chain(1, 5)
		now := uint32(time.Now().Unix())
		expired := stale.Expiry{Stored: now - 7200, Expires: now - 3600}
		for i := range 5 {
			o.Ages.Found(c.Key(i), expired)
		}
		expiring(t, r, m, c, 0, expired)
		expiring(t, r, m, c, 1, stale.Expiry{Stored: now - 60, Expires: now + 60})
		expiring(t, r, m, c, 2, stale.Expiry{})
		expiring(t, r, m, c, 3, stale.Expiry{Stored: now - 60, Expires: now - 1})
		is := make([]bool, 5)
		if err := r.Renewed(t.Context(), tiertest.Keys(c, 0, 5), is); err != nil {
			t.Fatal(err)
		}
		if want := []bool{false, true, true, false, false}; !slices.Equal(is, want) {
			t.Errorf("%v, want %v", is, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := r.Renewed(ctx, tiertest.Keys(c, 0, 5), is); err == nil {
			t.Error("a store that was not asked says which objects are new")
		}
	})
}

// TestExpiryOfAnObject: half an expiry, or none that can be one, makes an object foreign.
func TestExpiryOfAnObject(t *testing.T) {
	c := tiertest.Chain(1, 1)
	r := tier.Record{Key: c.Key(0), Tokens: 1, Size: 5, Sum: 7}
	expiry := stale.Expiry{Stored: 100, Expires: 100}
	m := metadata(&r, expiry)
	if got, s, err := parseMetadata(m); err != nil || got != r || s != expiry {
		t.Errorf("%+v, %+v, %v", got, s, err)
	}
	for name, change := range map[string]func(m map[string]string){
		"no birth": func(m map[string]string) { delete(m, metaBorn) },
		"no end":   func(m map[string]string) { delete(m, metaDies) },
		"negative": func(m map[string]string) { m[metaDies] = "-1" },
		"zero":     func(m map[string]string) { m[metaDies] = "0" },
		"a date":   func(m map[string]string) { m[metaBorn] = "2026-11-24" },
		"too late": func(m map[string]string) { m[metaDies] = "4294967296" },
	} {
		m := metadata(&r, expiry)
		change(m)
		if _, _, err := parseMetadata(m); !errors.Is(err, errForeign) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, s, err := parseMetadata(metadata(&r, stale.Expiry{})); err != nil || s.HasTTL() {
		t.Errorf("without an expiry: %+v, %v", s, err)
	}
}
