package daemon

import (
	"strconv"

	"github.com/kvstored/kvstored/internal/metric"
	"github.com/kvstored/kvstored/internal/whatif"
)

var (
	descIfHit     = desc("whatif_hit_ratio", "Share of the tokens asked for that DRAM and disk would have hit, had a tier another policy, or another size as a multiple of its own; as last estimated.", "tier", "policy", "factor")
	descIfCompute = desc("whatif_compute_ratio", "Share of the prefill compute that they would have saved.", "tier", "policy", "factor")
	descIfError   = desc("whatif_error_ratio", "The largest standard error of these hit ratios, of sampling.")
	descIfBound   = desc("whatif_bound_ratio", "Share of the tokens that a DRAM without end would have hit.")
	descIfSample  = desc("whatif_sample_ratio", "Share of the sessions that are in the sample.")
	descIfSpent   = desc("whatif_seconds_total", "Processor time that the sample and its estimates took, besides those that an administrator had made.")
	descIfDropped = desc("whatif_dropped_total", "Prompts that came too fast for the sample.")
)

// collectWhatIf exports the last estimate, where there is one, and what estimating took.
func collectWhatIf(w *whatif.Recorder, out metric.Out) {
	gauge, counter := out.Gauge, out.Counter
	out.Seconds(descIfSpent, w.Spent())
	r := w.Report()
	if r.At.IsZero() {
		return
	}
	worst := 0.0
	for i := range r.Rows {
		row := &r.Rows[i]
		factor := strconv.FormatFloat(row.Factor, 'g', -1, 64)
		gauge(descIfHit, row.Hit, row.Tier, row.Policy, factor)
		gauge(descIfCompute, row.Compute, row.Tier, row.Policy, factor)
		worst = max(worst, row.HitError)
	}
	gauge(descIfError, worst)
	gauge(descIfBound, r.Bound.Hit)
	gauge(descIfSample, r.Share)
	counter(descIfDropped, r.Dropped)
}
