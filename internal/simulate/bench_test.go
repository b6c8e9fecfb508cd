package simulate

import (
	"fmt"
	"testing"
)

// BenchmarkConversation reports block accesses per second on one core.
func BenchmarkConversation(b *testing.B) {
	trace := conversation(b)
	for _, name := range Policies() {
		for _, capacity := range []int{1000, 10_000, 50_000} {
			b.Run(fmt.Sprint(name, "/", capacity), func(b *testing.B) {
				for b.Loop() {
					p, err := newPlayer(trace, name, capacity, &Options{})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := trace.play(b.Context(), p); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(trace.Accesses()*b.N)/b.Elapsed().Seconds()/1e6, "Maccesses/s")
			})
		}
	}
}
