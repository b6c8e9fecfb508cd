package publish

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

// BenchmarkBatch encodes what a prompt of 24 chunks stores and makes go.
func BenchmarkBatch(b *testing.B) {
	space := key.SpaceID{1}
	known := key.Space{Model: "model", ChunkTokens: 256}
	e := &encoder{spaces: func(key.SpaceID) (key.Space, bool) { return known, true }}
	var list []index.Change
	hash := func(n int) (h key.Hash) {
		binary.BigEndian.PutUint64(h[:], uint64(n))
		h[15] = 1
		return h
	}
	for i := range 24 {
		list = append(list, index.Change{Kind: index.Removed, Key: key.Key{Space: space, Hash: hash(1000 + i)}})
	}
	for i := range 24 {
		c := index.Change{Tokens: 256, Key: key.Key{Space: space, Hash: hash(1 + i)}}
		if i > 0 {
			c.Parent = hash(i)
		}
		list = append(list, c)
	}
	now := time.Unix(1_000_000, 0)
	b.ReportAllocs()
	for b.Loop() {
		if len(e.batch(now, list)) == 0 {
			b.Fatal("nothing")
		}
	}
}
