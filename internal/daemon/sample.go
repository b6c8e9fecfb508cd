package daemon

import (
	"slices"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// newSample makes the recorder of what clients ask for.
func newSample(d *Daemon) *explain.Recorder {
	return explain.NewRecorder(explain.RecorderOptions{
		Tiers: func() explain.Tiers { return tiersOfSample(d) },
		Hits:  func() (asked, hit uint64) { return hitsOf(d.server.Stats()) },
		Busy:  func() time.Duration { return time.Duration(d.metrics.asking.Load()) },
		Used:  processTime,
	})
}

// hitsOf are the tokens that were asked for, and those of them that were in DRAM or on disk.
func hitsOf(st server.Stats) (asked, hit uint64) {
	return st.AskedTokens, st.HitTokens[tier.CPU] + st.HitTokens[tier.Disk]
}

// processTime is the processor time of this process; 0 where the system does not tell.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tiersOfSample are the tiers as they are now.
func tiersOfSample(d *Daemon) explain.Tiers {
	c := d.reloads.running()
	out := explain.Tiers{Write: c.Write.Mode, UnsafeAge: c.Write.UnsafeAge.Seconds()}
	st := d.stack.Stats().Tiers
	out.DRAM = tierOfSample(d, tier.CPU, st[tier.CPU], meanChunk)
	if disk, ok := st[tier.Disk]; ok {
		mean := int64(meanChunk)
		if out.DRAM.Chunks > 0 {
			mean = out.DRAM.Bytes / out.DRAM.Chunks
		}
		out.Disk = tierOfSample(d, tier.Disk, disk, mean)
	}
	byCompute := slices.ContainsFunc(c.Spaces, func(s config.Space) bool { return s.PrefillDepth > 0 })
	out.DRAM.ByCompute, out.Disk.ByCompute = byCompute, byCompute
	return out
}

// tierOfSample is one of them. Where it is empty, a chunk is taken to have mean bytes.
func tierOfSample(d *Daemon, p tier.Place, st tier.Stats, mean int64) explain.Tier {
	t := explain.Tier{Bytes: st.CapacityBytes}
	t.Policy, _ = d.stack.PolicyOf(p)
	if st.Entries > 0 {
		mean = max(1, st.UsedBytes/st.Entries)
	}
	t.Chunks = max(1, int64(float64(st.CapacityBytes)*(tier.HighWatermark+tier.LowWatermark)/2)/mean)
	return t
}
