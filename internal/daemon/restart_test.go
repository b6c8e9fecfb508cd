package daemon

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/tier"
)

// TestRestart: a restart costs what is to be written, at the speed of the writes so far, and
// what DRAM has where nothing keeps it.
func TestRestart(t *testing.T) {
	const stays = ": with cpu.keep and a keeper they would stay"
	if nothing := restart(new(Stats), false, 0, 0); nothing.Sentence != "" {
		t.Errorf("where DRAM is empty: %q", nothing.Sentence)
	}
	for _, tc := range []struct {
		name  string
		disk  *tier.Stats
		dirty int64
		took  time.Duration
		kept  bool
		want  string
	}{
		{"no disk", nil, 0, 0, false, "A restart now writes nothing to disk; the 3.0 GiB of DRAM are lost" + stays},
		{"no disk, kept", nil, 1 << 30, 0, true, "A restart now writes nothing to disk; its keeper keeps the 3.0 GiB of DRAM"},
		{"all is written", &tier.Stats{PutBytes: 1 << 30}, 0, time.Second, false, "A restart now has nothing to write; the 3.0 GiB of DRAM come from disk again" + stays},
		{"the first writes", &tier.Stats{}, 1 << 30, 0, true, "A restart now writes up to 1.0 GiB first, in 30s at most; its keeper keeps the 3.0 GiB of DRAM"},
		{"two writers", &tier.Stats{PutBytes: 1 << 30}, 2 << 30, 4 * time.Second, true, "A restart now writes up to 2.0 GiB first, in about 4.0 s; its keeper keeps the 3.0 GiB of DRAM"},
		{"too much", &tier.Stats{PutBytes: 1 << 30}, 2 << 30, 40 * time.Second, true, "A restart now has 2.0 GiB to write, which takes about 40.0 s: stop.flush allows 30s, and the rest is computed again; its keeper keeps the 3.0 GiB of DRAM"},
		{"the disk is off", &tier.Stats{PutBytes: 1 << 30, Off: true}, 1 << 30, time.Second, false, "A restart now writes nothing to disk; the 3.0 GiB of DRAM are lost" + stays},
	} {
		s := Stats{Store: store.Stats{DirtyBytes: tc.dirty, Tiers: map[tier.Place]tier.Stats{tier.CPU: {UsedBytes: 3 << 30}}, Written: map[tier.Place]writeback.Written{}}}
		if tc.disk != nil {
			s.Store.Tiers[tier.Disk], s.Store.Written[tier.Disk] = *tc.disk, writeback.Written{Workers: 2}
		}
		if got := restart(&s, tc.kept, tc.took, 30*time.Second).Sentence; got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
	}
}
