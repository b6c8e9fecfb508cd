package server_test

import (
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
