package daemon

import (
	"github.com/kvstored/kvstored/internal/metric"
	"github.com/kvstored/kvstored/internal/sample"
)

var (
	descSampleShare   = desc("whatif_sample_ratio", "Share of the sessions that are in the sample for kvstored-lab whatif.")
	descSampleSpent   = desc("whatif_seconds_total", "Processor time that the sample took.")
	descSampleDropped = desc("whatif_dropped_total", "Prompts that came too fast for the sample.")
)

// collectSample exports what the sample takes and holds.
func collectSample(r *sample.Recorder, out metric.Out) {
	share, dropped := r.Share()
	out.Gauge(descSampleShare, share)
	out.Seconds(descSampleSpent, r.Spent())
	out.Counter(descSampleDropped, dropped)
}
