package disk

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/tier"
)

// What switches a path off for a direction, and for how long: as the breaker
// before the whole tier does.
const (
	healthFailures = 5 // in a row
	healthPause    = time.Second
	healthPauseMax = 30 * time.Second
)

// health keeps one path of several, in trouble, out of the others' way. Reads
// and writes have one each, because a device that takes no more writes often
// still reads. Its methods may be called on nil: then it is always well. Its
// mutex is a leaf.
type health struct {
	log zerolog.Logger // says which path, and what it does not do

	mu struct {
		sync.Mutex
		failed  int // in a row
		off     bool
		pause   time.Duration
		probeAt time.Time
	}
}

// usable reports whether a transfer is worth a try. Of one that is off it says
// so once a pause: that one is the probe.
func (h *health) usable() bool {
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

// well reports whether it is not off, and lets no probe through.
func (h *health) well() bool {
	if h == nil {
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.mu.off
}

// ended draws the conclusion from a transfer.
func (h *health) ended(err error) {
	if h == nil || err != nil && !isTrouble(err) {
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

// hung says that nobody has been answered for the I/O timeout.
func (h *health) hung() {
	if h == nil {
		return
	}
	h.mu.Lock()
	was := h.mu.off
	h.fail(healthFailures)
	h.mu.Unlock()
	h.tell(was, true, errHung)
}

// fail counts; called with the mutex held.
func (h *health) fail(n int) {
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

func (h *health) tell(was, is bool, err error) {
	switch {
	case is && !was:
		h.log.Error().Err(err).Msg("a path of the disk tier is left alone after failures; the others go on")
	case was && !is:
		h.log.Info().Msg("a path of the disk tier works again")
	}
}

// isTrouble tells what a device in trouble says.
func isTrouble(err error) bool {
	var no syscall.Errno
	return errors.Is(err, tier.ErrHung) || errors.As(err, &no) && !isNoSpace(err)
}

// blame makes of the trouble of one path what a tier says that goes on without
// it: ErrOff, which opens no breaker. If no other path goes in that direction
// the trouble is the tier's.
func (t *Tier) blame(v *volume, write bool, err error) error {
	if err == nil || !isTrouble(err) || !t.othersWork(v, write) {
		return err
	}
	return fmt.Errorf("%v: %w", err, tier.ErrOff) //nolint:errorlint // else it would still be ErrHung
}

func (t *Tier) othersWork(v *volume, write bool) bool {
	return slices.ContainsFunc(t.volumes, func(o *volume) bool {
		h := o.dev.reading
		if write {
			h = o.dev.writing
		}
		return o != v && h.well()
	})
}
