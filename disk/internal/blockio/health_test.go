package blockio

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/tier"
)

// A direction goes off over faults of its device in a row, and over a single
// transfer that hangs; what a caller gives up is none.
func TestHealthGoesOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := fmt.Errorf("read: %w", syscall.EIO)
		repeat := func(err error, n int) (errs []error) {
			for range n {
				errs = append(errs, err)
			}
			return errs
		}
		for name, tt := range map[string]struct {
			ends []error
			well bool
		}{
			"faults":       {repeat(fault, tier.DefaultFailures), false},
			"one less":     {repeat(fault, tier.DefaultFailures-1), true},
			"with success": {append(repeat(fault, tier.DefaultFailures-1), nil, fault), true},
			"given up":     {repeat(context.Canceled, 3*tier.DefaultFailures), true},
			"full":         {repeat(syscall.ENOSPC, 3*tier.DefaultFailures), true},
		} {
			h := NewHealth(zerolog.Nop())
			for _, err := range tt.ends {
				h.Insist().End(err)
			}
			if h.Well() != tt.well {
				t.Errorf("%s: well: %t, want %t", name, h.Well(), tt.well)
			}
		}
		h := NewHealth(zerolog.Nop())
		x := &Transfer{Pass: h.Insist()}
		x.Hung()
		if h.Well() {
			t.Error("a transfer that hangs leaves its direction on")
		}
	})
}

// One that is off gives one pass a pause; the end of that probe, and of a
// transfer that is made in any case, turns it on.
func TestHealthComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(zerolog.Nop())
		(&Transfer{Pass: h.Insist()}).Hung()
		if _, ok := h.Admit(); ok {
			t.Error("it is tried before its pause is over")
		}
		time.Sleep(tier.DefaultPause)
		probe, ok := h.Admit()
		if _, again := h.Admit(); !ok || again {
			t.Errorf("a probe: %t, a second beside it: %t", ok, again)
		}
		probe.Return() // nothing came of it
		if probe, ok = h.Admit(); !ok {
			t.Fatal("a probe that was not made keeps others from it")
		}
		probe.End(syscall.EIO)
		if _, ok = h.Admit(); ok || h.Well() {
			t.Error("it is tried right after a probe that failed")
		}
		h.Insist().End(nil)
		if !h.Well() {
			t.Error("a transfer went well and it is still off")
		}
	})
}

// The pass of a transfer is ended once: a probe that hung and ends late says
// nothing about the one after it.
func TestHungTransferEndsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(zerolog.Nop())
		d := New(1, time.Minute)
		d.Reading = h
		done := make(told, 1)
		x := &Transfer{File: &recorder{}, Buf: make([]byte, miB), End: done}
		if err := d.Submit(x); err != nil {
			t.Fatal(err)
		}
		x.Hung()
		d.Cancel(x, ErrHung)
		if err := <-done; !errors.Is(err, ErrHung) {
			t.Error(err)
		}
		probe := h.Insist()
		x.finishes(t, done)
		if h.Well() {
			t.Error("a transfer that hung turns the path on while another probes")
		}
		probe.End(nil)
		if !h.Well() {
			t.Error("the probe went well and it is still off")
		}
	})
}

// finishes ends x as a device does that answers late.
func (t *Transfer) finishes(tb testing.TB, done told) {
	tb.Helper()
	t.err = nil
	t.finish()
	<-done
}

// A device that is stopped gives the pass of a transfer back.
func TestSubmitReturnsPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHealth(zerolog.Nop())
		(&Transfer{Pass: h.Insist()}).Hung()
		d := New(1, time.Minute)
		d.Writing = h
		d.Stop()
		h.ProbeNow()
		if err := d.Submit(&Transfer{Write: true, End: make(told, 1)}); err == nil {
			t.Error("a stopped device takes a transfer")
		}
		if _, ok := h.Admit(); !ok {
			t.Error("the pass is lost")
		}
	})
}
