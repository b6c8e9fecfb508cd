package blockio

import (
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/tier"
)

// What switches a path off for a direction, and for how long: as the breaker
// before the whole tier does.
const (
	healthFailures = 5 // in a row
	healthPause    = time.Second
	healthPauseMax = 30 * time.Second
)

// Health keeps one path of several, in trouble, out of the others' way. Reads
// and writes have one each, because a device that takes no more writes often
// still reads. Its methods may be called on nil: then it is always well. Its
// mutex is a leaf.
type Health struct {
	log zerolog.Logger // has the path and the direction, read or write

	mu struct {
		sync.Mutex
		failed  int // in a row
		off     bool
		pause   time.Duration
		probeAt time.Time
	}
}

// NewHealth logs to a log that has the path and the direction, read or write.
func NewHealth(log zerolog.Logger) *Health { return &Health{log: log} }

// ProbeNow ends the pause of one that is off.
func (h *Health) ProbeNow() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.probeAt = time.Time{}
}

// Usable reports whether a transfer is worth a try. Of one that is off it says
// so once a pause: that one is the probe.
func (h *Health) Usable() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.off {
		return true
	}
	now := time.Now()
	if now.Before(h.mu.probeAt) {
		return false
	}
	h.mu.probeAt = now.Add(h.mu.pause)
	return true
}

// Well reports whether it is not off, and lets no probe through.
func (h *Health) Well() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.off
}

// Ended draws the conclusion from a transfer.
func (h *Health) Ended(err error) {
	if h == nil || err != nil && !IsFault(err) {
		return
	}
	h.mu.Lock()
	was := h.mu.off
	if err == nil {
		h.mu.failed, h.mu.off = 0, false
	} else {
		h.fail(1)
	}
	is := h.mu.off
	h.mu.Unlock()
	h.tell(was, is, err)
}

// Hung turns the direction off at once: a transfer has outlasted the I/O timeout.
func (h *Health) Hung() {
	if h == nil {
		return
	}
	h.mu.Lock()
	was := h.mu.off
	h.fail(healthFailures)
	h.mu.Unlock()
	h.tell(was, true, ErrHung)
}

// fail counts; called with the mutex held.
func (h *Health) fail(n int) {
	h.mu.failed += n
	switch {
	case h.mu.off:
		h.mu.pause = min(2*h.mu.pause, healthPauseMax)
	case h.mu.failed >= healthFailures:
		h.mu.off, h.mu.pause = true, healthPause
	default:
		return
	}
	h.mu.probeAt = time.Now().Add(h.mu.pause)
}

func (h *Health) tell(was, is bool, err error) {
	switch {
	case is && !was:
		h.log.Error().Err(err).Msg("a path of the disk tier is left alone after failures; the others go on")
	case was && !is:
		h.log.Info().Msg("a path of the disk tier works again")
	}
}

// IsFault tells what a device in trouble says.
func IsFault(err error) bool {
	return errors.Is(err, tier.ErrHung) || filesystem.IsFailure(err)
}
