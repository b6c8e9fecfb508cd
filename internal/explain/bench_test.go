package explain

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"runtime"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// chains are prompts of so many chunks, of which the first few are those of all.
func chains(n, chunks, shared int) (out []key.Chain) {
	for id := range n {
		c := key.Chain{Hashes: make([]key.Hash, chunks), Tokens: make([]uint32, chunks)}
		for i := range c.Hashes {
			c.Tokens[i] = 256
			binary.LittleEndian.PutUint64(c.Hashes[i][:], uint64(i+1))
			if i >= shared {
				binary.LittleEndian.PutUint64(c.Hashes[i][8:], uint64(id+1))
			}
		}
		out = append(out, c)
	}
	return out
}

// BenchmarkSampled is what a request pays: of a prompt that is in the sample, and on average
// where one in 16 sessions is; without a prefix that all have in common, and with one.
func BenchmarkSampled(b *testing.B) {
	for _, chunks := range []int{24, 512} {
		for _, shared := range []int{0, 8} {
			list := chains(4096, chunks, shared)
			for _, shift := range []uint8{0, 4} {
				b.Run(fmt.Sprintf("chunks=%d/shared=%d/one-in=%d", chunks, shared, 1<<shift), func(b *testing.B) {
					r := NewRecorder(RecorderOptions{Tiers: func() Tiers { return Tiers{} }})
					g := &gate{shift: shift, heads: make(map[uint64]struct{})}
					for i := range shared {
						g.heads[hashOf(&list[0].Space, &list[0].Hashes[i])] = struct{}{}
					}
					r.gate.Store(g)
					var empty batch
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if r.Asked(&list[i%len(list)]); i%64 == 0 {
							empty = r.queue.take(empty)
						}
					}
				})
			}
		}
	}
}

// BenchmarkBytes is what a full sample and its copy take, and the copy's JSON, in KiB. The
// three are to stay below SampleBytes.
func BenchmarkBytes(b *testing.B) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := heap()
		full := newBook(maxChunks)
		for i := 0; len(full.hashes) < maxChunks-2 || len(full.list) < maxChunks/chunksInPrompt-2; i++ {
			full.add(session(uint64(i), 0, 2), &item{tokens: 512, chunk: 256}, 1_795_514_400_000)
		}
		const queues = 2 * queueHashes * 8
		kept := heap() - before + queues
		var s Sample
		full.fill(&s)
		copied := heap() - before - kept + queues
		text, err := json.Marshal(&s)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(kept>>10), "KiB-sample")
		b.ReportMetric(float64(copied>>10), "KiB-copy")
		b.ReportMetric(float64(len(text)>>10), "KiB-JSON")
		b.ReportMetric(SampleBytes>>10, "KiB-allowed")
		runtime.KeepAlive(full)
	}
}
