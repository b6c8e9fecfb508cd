package daemon

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/tier"
)

// progressInterval is how often the log says how far long work is.
const progressInterval = 10 * time.Second

// pace is where a piece of work on bytes began, from which its rate is reckoned. The zero
// value has not begun.
type pace struct {
	mu struct {
		sync.Mutex
		since time.Time
		from  int64 // bytes that were done then
		last  int64 // that were done when it was asked last
	}
}

// progress logs how far populating DRAM and surveying the disk tier are.
func (d *Daemon) progress(ctx context.Context, every time.Duration) error {
	texts := func() []string { return []string{d.populateText(), d.surveyText()} }
	texts() // the rates begin here
	for base.Sleep(ctx, every) == nil {
		for _, text := range texts() {
			if text != "" {
				d.log.Info().Msg(text)
			}
		}
	}
	return nil
}

// populateText says how far DRAM is; "" where no more of it will be there.
func (d *Daemon) populateText() string {
	if !d.arena.Populating() {
		return ""
	}
	return "DRAM is being populated: " + d.populates.far(d.arena.Populated(), d.arena.Stats().CapacityBytes, time.Now())
}

// surveyText says how far the disk tier is with the headers of its segments; "" where it reads none.
func (d *Daemon) surveyText() string {
	n := d.stack.Stats().Tiers[tier.Disk].Counters
	done, total := int64(n["rebuild_bytes"]), int64(n["rebuild_total_bytes"])
	text := d.surveys.far(done, total, time.Now())
	if total == 0 {
		return ""
	}
	return "the disk tier is being surveyed: " + text
}

// far says how far the work is, its rate, and how long the rest takes at that. Work of no
// bytes, or of fewer than before, is over: what comes next begins anew.
func (p *pace) far(done, total int64, now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if total == 0 || done < p.mu.last {
		p.mu.since = time.Time{}
	}
	p.mu.last = done
	if p.mu.since.IsZero() && total > 0 {
		p.mu.since, p.mu.from = now, done
	}
	text := fmt.Sprintf("%s of %s", human.Bytes(done), human.Bytes(total))
	if rate := float64(done-p.mu.from) / max(1e-3, now.Sub(p.mu.since).Seconds()); rate >= 1 {
		text += fmt.Sprintf(", %s/s, %s left", human.Bytes(rate), human.Seconds(float64(max(0, total-done))/rate))
	}
	return text
}
