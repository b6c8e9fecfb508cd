package sglang_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

var mostKills = flag.Int("kills", 200, "how often TestKills kills the daemon of each class")

// TestKills: the daemon is killed many times while an engine loads from it. No answer that is
// given is another than before. HiCache loses no request, nor does the linker where a keeper
// has the daemon's DRAM; without one SGLang gives up those of a batch that cannot be loaded
// any more, which are counted.
func TestKills(t *testing.T) {
	if !*long {
		t.Skip("it takes minutes: -long")
	}
	sglang.Python(t)
	for _, tt := range []struct {
		name    string
		options func(more object) object
		kept    bool
	}{{"hicache", hicache, false}, {"linker with a keeper", linker, true}, {"linker", linker, false}} {
		t.Run(tt.name, func(t *testing.T) {
			d := daemon.Folder(t, roomy, func(cfg *config.Config) { cfg.CPU.Keep = tt.kept })
			if tt.kept {
				d.Keep()
			}
			d.Start()
			e := start(t, d.Socket, tt.options(nil))
			r := rand.New(rand.NewPCG(3, 4))
			all := drive.Random(r, 8, 900)
			want := e.generate(all, nil)
			stored(t, d, pages(all))
			before := d.Attached()
			kills, found, aborted := 0, 0, 0
			for kills < *mostKills {
				e.flush()
				killer := time.AfterFunc(time.Duration(r.IntN(1000))*time.Millisecond, func() { _ = d.Process().Kill() })
				for at := 0; at < len(all); at += 4 {
					g := e.generate(all[at:at+4], object{"together": true})
					for i, a := range g.Answers {
						switch {
						case g.Aborted[i]:
							aborted++
						case !slices.Equal(a.IDs, want.Answers[at+i].IDs):
							t.Errorf("after %d kills prompt %d has the tokens %v, want %v", kills, at+i, a.IDs, want.Answers[at+i].IDs)
						}
						found += g.Tokens[i]
					}
				}
				if !killer.Stop() {
					kills++
					_ = d.Wait()
					d.Start()
					d.AwaitAttached(before)
				}
			}
			t.Logf("%d kills: %d tokens came from the daemon, %d requests were given up", kills, found, aborted)
			if aborted > 0 && (tt.kept || tt.name == "hicache") {
				t.Errorf("%d requests were given up", aborted)
			}
			if found < *mostKills/2*900 {
				t.Error("too few for a test of loads")
			}
		})
	}
}
