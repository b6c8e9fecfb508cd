package disk

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/disk/internal/filesystem"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/faultfs"
	"github.com/kvstored/kvstored/tier"
)

// No Sync succeeds while the database's logs cannot be written: neither the
// first one, which the kernel tells of it, nor the next, which it does not tell.
// The entry synced before is there afterwards, and no error counts as damage.
func TestSyncAmidEIO(t *testing.T) {
	fs := faultfs.Mount(t)
	o := testOptions(filepath.Join(fs.Dir, "disk"))
	o.Buffered = true
	m := newMemory(t)
	k := keep(t, o)
	awaitOpen(t, k)
	works(t, k, m, 0)
	if err := k.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := fs.FailWrites("*.mem"); err != nil {
		t.Fatal(err)
	}
	works(t, k, m, 1)
	for range 3 {
		if err := k.Sync(context.Background()); err == nil {
			t.Error("a sync succeeds")
		}
	}
	if err := fs.Heal(); err != nil {
		t.Fatal(err)
	}
	await(t, "the tier does not come back", func() bool { return k.Sync(context.Background()) == nil })
	if err := k.Recover(t.Context(), func([]tier.Record) {}); err != nil {
		t.Fatal(err)
	}
	mustGetKept(t, k, m, 0)
	if damaged, err := filesystem.Exists(filepath.Join(o.Paths[0], metadata.DamagedName)); damaged || err != nil {
		t.Errorf("the database was moved aside (%v)", err)
	}
}
