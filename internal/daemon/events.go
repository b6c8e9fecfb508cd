package daemon

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/kvstored/kvstored/internal/events"
)

// makeEpoch draws a number for this life of the daemon.
func makeEpoch() (uint64, error) {
	var epoch [8]byte
	if _, err := rand.Read(epoch[:]); err != nil {
		return 0, fmt.Errorf("epoch: %w", err)
	}
	return binary.LittleEndian.Uint64(epoch[:]), nil
}

// makeEvents makes the log of events, before the store that notes in it.
func (d *Daemon) makeEvents() {
	if o := d.cfg.Events; o.Enabled {
		d.events = events.New(d.epoch, events.Options{Batches: o.Batches, Changes: o.Batches * events.MaxBatch / 4})
	}
}
