package daemon

import (
	"context"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/internal/cli/human"
	"github.com/kvstored/kvstored/tier"
)

// progressInterval is how often the log says how far the work of a start is.
const progressInterval = 10 * time.Second

// progress logs how far the work of a start is, until it is done.
func (d *Daemon) progress(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		populate, survey := d.populateText(), d.surveyText()
		for _, text := range []string{populate, survey} {
			if text != "" {
				d.log.Info().Msg(text)
			}
		}
		if populate == "" && d.stack.Ready() {
			return nil
		}
	}
}

// populateText says how far DRAM is; "" where no more of it will be there.
func (d *Daemon) populateText() string {
	if !d.arena.Populating() {
		return ""
	}
	return "DRAM is being populated: " + far(d.arena.Populated(), d.arena.Stats().CapacityBytes, time.Since(d.started))
}

// surveyText says how far the disk tier is with the headers of its segments; "" where it reads none.
func (d *Daemon) surveyText() string {
	n := d.stack.Stats().Tiers[tier.Disk].Counters
	if n["rebuild_total_bytes"] == 0 {
		return ""
	}
	return "the disk tier is being surveyed: " + far(int64(n["rebuild_bytes"]), int64(n["rebuild_total_bytes"]), time.Since(d.started))
}

// far says how far work on bytes is, its rate, and how long the rest takes at that.
func far(done, total int64, took time.Duration) string {
	text := fmt.Sprintf("%s of %s", human.Bytes(done), human.Bytes(total))
	if rate := float64(done) / max(1e-3, took.Seconds()); rate >= 1 {
		text += fmt.Sprintf(", %s/s, %s left", human.Bytes(rate), human.Seconds(float64(max(0, total-done))/rate))
	}
	return text
}
