package simulate

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// BenchmarkConversation reports block accesses per second of processor time:
// one core's, also on a busy machine.
func BenchmarkConversation(b *testing.B) {
	trace := conversation(b)
	for _, name := range Policies() {
		for _, capacity := range []int{1000, 10_000, 50_000} {
			b.Run(fmt.Sprint(name, "/", capacity), func(b *testing.B) {
				start := busy(b)
				for b.Loop() {
					p, err := newPlayer(trace, name, capacity, &Options{})
					if err != nil {
						b.Fatal(err)
					}
					if _, err := trace.play(b.Context(), p, &Options{}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(trace.Accesses()*b.N)/(busy(b)-start).Seconds()/1e6, "Maccesses/s")
			})
		}
	}
}

// busy is the processor time of this process.
func busy(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
