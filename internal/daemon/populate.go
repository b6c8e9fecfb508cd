package daemon

import (
	"context"
	"fmt"

	"github.com/kvstored/kvstored/internal/human"
)

// populatedReady is how much of DRAM has to be there, if it is so large, before the daemon is ready.
const populatedReady = 1 << 30

// populate faults DRAM in, until ctx ends. Without some of it the daemon serves.
func (d *Daemon) populate(ctx context.Context) error {
	if !d.arena.Populating() {
		return nil
	}
	err := d.arena.Populate(ctx)
	if ctx.Err() != nil {
		return nil
	}
	d.countHuge()
	if err == nil {
		logArena(&d.log, d.arena, "DRAM is populated")
	} else {
		err = fmt.Errorf("DRAM has only %s of the %s of cpu.capacity (lower that, or free memory and restart the daemon): %w",
			human.Bytes(d.arena.Populated()), human.Bytes(int64(d.cfg.CPU.Capacity)), err)
		d.short.Store(&err)
		d.log.Error().Err(err).Msg("DRAM stays smaller than it should be")
	}
	return nil
}

// populating says how far DRAM is while there is too little of it; nil when there is enough, or
// no more will be.
func (d *Daemon) populating() error {
	st := d.arena.Stats()
	if !d.arena.Populating() || st.PopulatedBytes >= populatedReady {
		return nil
	}
	return fmt.Errorf("DRAM is being populated: %s of %s are there", human.Bytes(st.PopulatedBytes), human.Bytes(st.CapacityBytes))
}

// countHuge has statistics say how much of DRAM is in huge pages.
func (d *Daemon) countHuge() {
	if err := d.arena.CountHuge(); err != nil {
		d.log.Warn().Err(err).Msg("huge pages of DRAM are not counted")
	}
}
