package store_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tierfault"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// A purge has the disk sync its deletions before it says that it is done, and
// fails where the disk cannot; a dry one, and a deletion of keys, do not.
func TestPurgeIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var calls []tierfault.Op
		var broken error
		r := newRig(t, options{hook: func(call tierfault.Call) tierfault.Fault {
			mu.Lock()
			defer mu.Unlock()
			if call.Op != tierfault.Delete && call.Op != tierfault.Sync {
				return tierfault.Fault{}
			}
			calls = append(calls, call.Op)
			return tierfault.Fault{Err: broken}
		}})
		c := tiertest.Chain(1, 4)
		r.put(c, 0, 4, size)
		r.flush()
		told := func(fail error) []tierfault.Op {
			mu.Lock()
			defer mu.Unlock()
			was := calls
			calls, broken = nil, fail
			return was
		}
		told(nil)
		if p, err := r.Remover.Purge(t.Context(), c.Space, "", true); err != nil || p.Known != 4 || len(told(nil)) > 0 {
			t.Errorf("dry: %+v, %v", p, err)
		}
		if _, err := r.Remover.Delete(t.Context(), []key.Key{c.Key(3)}); err != nil || slices.Contains(told(nil), tierfault.Sync) {
			t.Errorf("a deletion of keys: %v, or it syncs", err)
		}
		p, err := r.Remover.Purge(t.Context(), c.Space, "", false)
		got := told(tier.ErrOff)
		if err != nil || p.Known != 3 || len(got) < 2 || got[len(got)-1] != tierfault.Sync || !slices.Contains(got, tierfault.Delete) {
			t.Errorf("purge: %+v, %v, after %v", p, err, got)
		}
		if _, err := r.Remover.Purge(t.Context(), c.Space, "", false); !errors.Is(err, tier.ErrOff) {
			t.Errorf("where the disk cannot sync: %v", err)
		}
	})
}
