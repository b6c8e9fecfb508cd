package daemon

import (
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/simulate"
	"github.com/kvstored/kvstored/internal/whatif"
	"github.com/kvstored/kvstored/tier"
)

// newWhatIf makes the recorder that estimates other sizes and policies; nil where that is off.
func newWhatIf(d *Daemon) *whatif.Recorder {
	if !d.cfg.Admin.WhatIf {
		return nil
	}
	return whatif.New(whatif.Options{
		Tiers:  func() whatif.Tiers { return tiersForWhatIf(d) },
		Busy:   func() time.Duration { return time.Duration(d.metrics.asking.Load()) },
		Used:   processTime,
		Chunks: d.cfg.Limits.Chunks,
	})
}

// processTime is the processor time of this process; 0 where the system does not tell.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tiersForWhatIf are the tiers as they are now.
func tiersForWhatIf(d *Daemon) whatif.Tiers {
	c := d.reloads.running()
	out := whatif.Tiers{Write: simulate.Write(c.Write.Mode), UnsafeAge: c.Write.UnsafeAge.Seconds(), MinHits: min(c.Write.MinHits, 255)}
	st := d.stack.Stats().Tiers
	out.DRAM = tierForWhatIf(d, tier.CPU, st[tier.CPU], c.CPU.HighWatermark, c.CPU.LowWatermark, meanChunk)
	if disk, ok := st[tier.Disk]; ok {
		mean := int64(meanChunk)
		if out.DRAM.Chunks > 0 {
			mean = out.DRAM.Bytes / out.DRAM.Chunks
		}
		out.Disk = tierForWhatIf(d, tier.Disk, disk, c.Disk.HighWatermark, c.Disk.LowWatermark, mean)
	}
	by := byCompute(&c)
	out.DRAM.ByCompute, out.Disk.ByCompute = by.Has(tier.CPU), by.Has(tier.Disk)
	return out
}

// tierForWhatIf is one of them. Where it is empty, a chunk is taken to have mean bytes.
func tierForWhatIf(d *Daemon, p tier.Place, st tier.Stats, high, low float64, mean int64) whatif.Tier {
	t := whatif.Tier{Bytes: st.CapacityBytes}
	t.Policy, _ = d.stack.PolicyOf(p)
	if st.Entries > 0 {
		mean = max(1, st.UsedBytes/st.Entries)
	}
	t.Chunks = max(1, int64(float64(st.CapacityBytes)*(high+low)/2)/mean)
	return t
}
