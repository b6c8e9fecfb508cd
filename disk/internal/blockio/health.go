package blockio

import (
	"errors"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/tier"
)

// Health keeps one path of several, in trouble, out of the others' way: a
// circuit breaker that the ends of transfers open and close. Reads and writes
// have one each, because a device that takes no more writes often still reads.
// Its methods may be called on nil: then it is always well.
type Health struct {
	log     zerolog.Logger // has the path and the direction, read or write
	breaker *tier.Breaker
}

// NewHealth logs to a log that has the path and the direction, read or write.
func NewHealth(log zerolog.Logger) *Health {
	return &Health{log: log, breaker: tier.NewBreaker(tier.BreakerOptions{})}
}

// Pass is the leave to make one transfer in a direction of a path. It is for one
// transfer, which ends it, or is ended by its owner. The zero Pass is none.
type Pass struct {
	health *Health
	pass   tier.BreakerPass
}

// Admit asks for leave to make a transfer. While the direction is off it gives
// that once a pause: that transfer is the probe.
func (h *Health) Admit() (p Pass, ok bool) {
	if h == nil {
		return Pass{}, true
	}
	pass, ok := h.breaker.Admit(true)
	if !ok {
		return Pass{}, false
	}
	return Pass{h, pass}, true
}

// Insist is the pass of a transfer that is made in any case. While the direction
// is off its end says as much as that of a probe, unless another one is under way.
func (h *Health) Insist() Pass {
	p, ok := h.Admit()
	if !ok {
		h.ProbeNow()
		p, _ = h.Admit()
	}
	return p
}

// ProbeNow ends the pause of one that is off.
func (h *Health) ProbeNow() { h.breaker.ProbeNow() }

// Well reports whether it is not off, and lets no probe through.
func (h *Health) Well() bool { return h == nil || !h.breaker.Stats().Open }

// End draws the conclusion from a transfer, or from the work before it that
// failed: an error that says nothing about the device, as of one that was given
// up, changes nothing.
func (p Pass) End(err error) {
	switch {
	case err == nil:
		p.end(tier.CallGood, nil)
	case IsFault(err):
		p.end(tier.CallBad, err)
	default:
		p.end(tier.CallNothing, nil)
	}
}

// Return ends the pass of a transfer that is not made.
func (p Pass) Return() { p.end(tier.CallNothing, nil) }

func (p Pass) end(v tier.Verdict, err error) {
	h := p.health
	if h == nil {
		return
	}
	switch change := h.breaker.End(p.pass, v, err); {
	case change.Opened:
		h.log.Error().Err(err).Msg("a path of the disk tier is left alone after failures; the others go on")
	case change.Closed:
		h.log.Info().Msg("a path of the disk tier works again")
	}
}

// IsFault tells what a device in trouble says.
func IsFault(err error) bool {
	return errors.Is(err, tier.ErrHung) || folders.IsFailure(err)
}
