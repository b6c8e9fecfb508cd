package sglang_test

import (
	"slices"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/engines/drive"
)

// TestEqual: prompts answered with KV from the daemon, after the engine has forgotten it and
// by an engine that never computed it, have the log-probabilities that the engine's own cache
// gives, bit by bit, and those without a cache to five digits behind the point; and a daemon
// that is killed, away and back costs hits and nothing else.
func TestEqual(t *testing.T) {
	sglang.Python(t)
	all := prompts()
	plain := start(t, "/nowhere", object{"disable_radix_cache": true})
	cold := plain.generate(all, nil)
	var computed [][]int // that the engine has KV of: the last token is not fed to it any more
	for i, p := range all {
		ids := cold.Answers[i].IDs
		computed = append(computed, slices.Concat(p, ids[:len(ids)-1]))
	}
	plain.Stop()
	// The last page of a prompt is computed always, and one of the second is shared by none.
	want := []int{992, 1088, 1488}
	for name, options := range classes {
		t.Run(name, func(t *testing.T) {
			d := daemon.Start(t, roomy)
			first := start(t, d.Socket, options(nil))
			e := first
			hits := func(what string, want []int, bits []drive.Answer) []drive.Answer {
				t.Helper()
				g := e.generate(all, nil)
				drive.Near(t, what, g.Answers, cold.Answers, 1e-5)
				if bits != nil {
					drive.Equal(t, what, g.Answers, bits, true)
				}
				if !slices.Equal(g.Tokens, want) {
					t.Errorf("%s: of the prompts %d tokens were there, want %d", what, g.Tokens, want)
				}
				t.Logf("%s: %.1f s, %d, %v", what, g.Seconds, g.Tokens, g.Cached)
				return g.Answers
			}
			hits("cold", []int{0, 592, 0}, nil)
			own := hits("again", want, nil)
			stored(t, d, pages(computed))
			first.flush()
			hits("after a flush", want, own)
			first.Stop()

			e = start(t, d.Socket, options(nil))
			hits("after the engine's restart", want, own)
			before := d.Attached()
			d.Kill()
			e.flush()
			hits("without the daemon", []int{0, 592, 0}, nil)
			d.Start()
			d.AwaitAttached(before)
			e.flush()
			hits("after the daemon's restart", want, own)
		})
	}
}
