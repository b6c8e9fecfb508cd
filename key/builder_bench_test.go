package key_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func BenchmarkBuilder(b *testing.B) {
	const chunks, size = 1000, 256
	tokens := ascending(chunks * size)
	raw := tokenBytes(tokens)
	lengths := slices.Repeat([]uint32{size}, chunks)
	run := func(m key.Method, form string, build func(*key.Builder, *key.Chain) error) {
		b.Run(fmt.Sprintf("%s/%s", m, form), func(b *testing.B) {
			builder := newBuilder(b, space(m, size))
			var c key.Chain
			b.ReportAllocs()
			for b.Loop() {
				if err := build(builder, &c); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*chunks), "ns/chunk")
		})
	}
	for _, m := range []key.Method{key.SHA256, key.XXH64} {
		run(m, "tokens", func(b *key.Builder, c *key.Chain) error { return b.Tokens(c, tokens, key.Options{}) })
		run(m, "bytes", func(b *key.Builder, c *key.Chain) error { return b.TokenBytes(c, raw, key.Options{}) })
	}
	for _, width := range []int{8, 16, 32} {
		given := wide(width, chunks)
		run(key.Given, fmt.Sprint(width), func(b *key.Builder, c *key.Chain) error {
			return b.Hashes(c, width, given, lengths, key.Options{})
		})
	}
}
