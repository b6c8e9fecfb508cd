package daemon

import (
	"cmp"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base/broken"
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
	state   string // that was told last: ready, not ready or degraded
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
	return strings.ReplaceAll(trouble.Error(), "\n", "; ") + h.began(now)
}

// began is since when it is wrong; h.mu is held.
func (h *health) began(now time.Time) string {
	form := "15:04"
	if now.Sub(h.since) > 12*time.Hour {
		form = "2006-01-02 15:04"
	}
	return ", since " + h.since.Format(form)
}

// told is a trouble that was just found, with its beginning, as far as there was a look.
func (h *health) told(now time.Time, trouble error) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.wrong {
		return trouble.Error()
	}
	return trouble.Error() + h.began(now)
}

// changed reports whether another state is told than before; a daemon begins as not ready.
func (h *health) changed(state string) (before string, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before, h.state = cmp.Or(h.state, "not ready"), state
	return before, before != state
}

// trouble is what the daemon does without.
func (d *Daemon) trouble() error {
	err := errors.Join(d.stack.Trouble(), broken.Err(), d.cpu.Mistrusted(), d.distrusted.Err())
	if short := d.short.Load(); short != nil {
		err = errors.Join(*short, err)
	}
	return err
}

// healthNow is ready, not ready or degraded, with the reason. The log has each change.
func (d *Daemon) healthNow(tiers map[tier.Place]tier.Stats, written map[tier.Place]stack.Written) string {
	why := d.health.look(time.Now(), d.trouble(), written[tier.Disk].Dropped[stack.DropNoSpace].Chunks, tiers[tier.Disk].Puts)
	state, level := "ready", zerolog.InfoLevel
	if err := d.ready(); err != nil {
		state, why = "not ready", err.Error()
	} else if why != "" {
		state, level = "degraded", zerolog.WarnLevel
	}
	text := strings.TrimSuffix(state+": "+why, ": ")
	if before, changed := d.health.changed(state); changed {
		d.log.WithLevel(level).Str("before", before).Msg(text)
	}
	return text
}
