package blob_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/blob"
	"github.com/kvstored/kvstored/internal/blob/blobtest"
)

// BenchmarkCountHas asks for 1,000 names whose values are sheltered, and for as
// many that have none.
func BenchmarkCountHas(b *testing.B) {
	r := blobtest.New(b, 512<<20)
	for _, there := range []bool{true, false} {
		b.Run(fmt.Sprintf("there=%t", there), func(b *testing.B) {
			list := make([][]byte, 1000)
			for i := range list {
				list[i] = fmt.Appendf(nil, "%t:model@1@0@%032x", there, i)
				if !there {
					continue
				}
				f, err := r.Begin(b.Context(), 0, list[i], 32<<10)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := f.Store(b.Context(), blob.Always, time.Time{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				if n := r.CountHas(b.Context(), list); n > 0 != there {
					b.Fatal(n)
				}
			}
		})
	}
}
