package server_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/wire"
)

// Pages are kept only of a window, and only for a client that asks for it; a bit without
// what it needs is not granted, which is no error.
func TestHelloKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const memory = wire.FeatureArena | wire.FeatureStaging
		r := newRig(t, options{})
		for wants, granted := range map[wire.Features]wire.Features{
			memory:                                   memory,
			memory | wire.FeatureKeep:                memory | wire.FeatureKeep,
			wire.FeatureArena | wire.FeatureKeep:     wire.FeatureArena,
			wire.FeatureKeep:                         0,
			wire.FeatureStaging:                      0,
			1 << 2:                                   0, // a writable arena, which there was
			wire.FeatureStaging | 1<<2:               0,
			wire.FeatureKeep | wire.FeaturePushes:    wire.FeaturePushes,
			memory | wire.FeatureKeep | 1<<5 | 1<<31: memory | wire.FeatureKeep, // 1<<5 was the directory of the arena
		} {
			if got := r.greet(wants).hello.Granted; got != granted {
				t.Errorf("a client that wants %#x is granted %#x, not %#x", wants, got, granted)
			}
		}
	})
}

// A client whose driver may page-lock DRAM is asked to come again while that is populated: the
// driver would fault it in as memory of the client. It never maps memory that is missing.
func TestHelloKeepsNoMissingMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keeps = wire.FeatureArena | wire.FeatureStaging | wire.FeatureKeep
		const slice, capacity = 64 * mib, 256 * mib
		var touched atomic.Int64
		short := errors.New("cannot allocate memory")
		r := newRig(t, options{capacity: capacity, touch: func(p []byte, _ bool) error {
			if n := touched.Add(int64(len(p))); n > 2*slice {
				return short
			}
			return nil
		}})
		r.connect().refused(wire.CodeStarting, wire.OpHello, &wire.HelloRequest{MinVersion: 2, MaxVersion: 2, Wants: keeps})
		if n := r.greet(wire.FeatureArena).hello.ArenaBytes; n != capacity {
			t.Errorf("while it is populated %d bytes are to be mapped", n)
		}
		if err := r.arena.Populate(t.Context()); !errors.Is(err, short) {
			t.Error(err)
		}
		if n := r.greet(keeps).hello.ArenaBytes; n != 2*slice {
			t.Errorf("of %d bytes %d are to be mapped", 2*slice, n)
		}
	})
}
