package daemon

import (
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/broken"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// health follows the troubles of tiers.
type health struct {
	mu      sync.Mutex
	refused uint64 // chunks for which the disk had no room
	puts    uint64 // chunks that it took
	full    bool   // the last was refused
	wrong   bool
	since   time.Time
}

var errFull = errors.New("the disk tier has no room for a chunk: its file system is full, or disk.capacity too small")

// look is the trouble and its beginning; "" without one.
func (h *health) look(now time.Time, trouble error, refused, puts uint64) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case refused > h.refused:
		h.full = true
	case puts > h.puts:
		h.full = false
	}
	h.refused, h.puts = refused, puts
	if h.full {
		trouble = errors.Join(trouble, errFull)
	}
	if h.wrong != (trouble != nil) {
		h.wrong, h.since = trouble != nil, now
	}
	if trouble == nil {
		return ""
	}
	form := "15:04"
	if now.Sub(h.since) > 12*time.Hour {
		form = "2006-01-02 15:04"
	}
	return strings.ReplaceAll(trouble.Error(), "\n", "; ") + ", since " + h.since.Format(form)
}

// trouble is what the daemon does without.
func (d *Daemon) trouble() error {
	err := errors.Join(d.stack.Trouble(), broken.Err())
	if short := d.short.Load(); short != nil {
		err = errors.Join(*short, err)
	}
	return err
}

// healthNow is ready, not ready or degraded, with the reason.
func (d *Daemon) healthNow(tiers map[tier.Place]tier.Stats, written map[tier.Place]stack.Written) string {
	why := d.health.look(time.Now(), d.trouble(), written[tier.Disk].Dropped[stack.DropNoSpace].Chunks, tiers[tier.Disk].Puts)
	if err := d.ready(); err != nil {
		return "not ready: " + err.Error()
	}
	if why != "" {
		return "degraded: " + why
	}
	return "ready"
}
