package disk

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// What a quota is exceeded by goes with the next Trim, and nothing else does;
// so does what an earlier process left.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		each := o.occupied(mib)
		o.Quotas = []ledger.Quota{{Bytes: 3 * each}}
		d, stop := start(t, o, nil)
		m := newMemory(t)
		for i := range 6 {
			mustPut(t, d, m, i, mib)
		}
		trim := func(d *rig) []key.Key {
			t.Helper()
			out, err := d.Trim(context.Background(), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if out := trim(d); len(out) != 0 || d.Ledger().OverQuota() {
			t.Fatalf("%d evicted under no quota", len(out))
		}
		d.Ledger().Tuning().Assign(keyOf(0).Space, 0)
		if !d.Ledger().OverQuota() {
			t.Fatal("six payloads are within the room of three")
		}
		out := trim(d)
		if q := d.Stats().Quotas[0]; len(out) != 3 || d.Ledger().OverQuota() || q.UsedBytes != 3*each || q.Evictions != 3 {
			t.Fatalf("%d evicted, %+v", len(out), q)
		}
		for i, k := range out {
			if k != keyOf(i) {
				t.Errorf("victim %d is not the oldest", i)
			}
		}
		checkBooks(t, d)
		stop()

		o.Quotas = []ledger.Quota{{Bytes: each}}
		d, _ = start(t, o, nil)
		if got := recoverAll(t, d); len(got) != 3 {
			t.Fatalf("recovered %d", len(got))
		}
		d.Ledger().Tuning().Assign(keyOf(0).Space, 0)
		if out := trim(d); len(out) != 2 || d.Stats().Entries != 1 {
			t.Errorf("%d evicted, %d left", len(out), d.Stats().Entries)
		}
		checkBooks(t, d)
	})
}
