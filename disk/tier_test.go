package disk

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var sizes = []int{1, 512, 513, 4095, 4096, 4097, 100_000, mib, mib + 1, 3*mib + 7}

func TestRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, buffered := range []bool{false, true} {
			o := testOptions(t.TempDir())
			o.Buffered = buffered
			d, _ := start(t, o, nil)
			m := newMemory(t)
			for i, n := range sizes {
				wantErr(t, get(t, d, m, i, n), tier.ErrNotFound)
				mustPut(t, d, m, i, n)
				mustPut(t, d, m, i, n) // there already
				mustGet(t, d, m, i, n)
			}
			s := d.Stats()
			if s.Entries != int64(len(sizes)) || s.Puts != uint64(len(sizes)) || s.Gets != uint64(len(sizes)) {
				t.Fatalf("stats: %+v", s)
			}
			if buffered && s.Counters["direct_io"] != 0 {
				t.Fatal("direct I/O although it was turned off")
			}
			if used := m.Stats().Blocks; used != 0 {
				t.Fatalf("%d blocks are still referenced", used)
			}
			checkBooks(t, d)
		}
	})
}

func TestContainsDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		m := newMemory(t)
		for i := range 10 {
			mustPut(t, d, m, i, 5000)
		}
		ctx := context.Background()
		if err := d.Delete(ctx, []key.Key{keyOf(3), keyOf(99), keyOf(5)}); err != nil {
			t.Fatal(err)
		}
		ks, have := make([]key.Key, 11), make([]bool, 11)
		for i := range ks {
			ks[i] = keyOf(i)
		}
		if err := d.Contains(ctx, ks, have); err != nil {
			t.Fatal(err)
		}
		for i, got := range have {
			if want := i != 3 && i != 5 && i != 10; got != want || d.Has(ks[i]) != want {
				t.Fatalf("key %d: contains %t, has %t, want %t", i, got, d.Has(ks[i]), want)
			}
		}
		wantErr(t, get(t, d, m, 3, 5000), tier.ErrNotFound)
		mustPut(t, d, m, 3, 6000)
		mustGet(t, d, m, 3, 6000)
		checkBooks(t, d)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, stop := start(t, testOptions(tiertest.Folder(t)), nil)
		m := newMemory(t)
		wantErr(t, put(t, d, m, 1, 8*mib+1), tier.ErrTooLarge)
		e := entryOf(t, m, 1, 100)
		defer e.Block.Release()
		e.Size++
		if err := d.Put(context.Background(), e); err == nil {
			t.Fatal("a size that is not the block's was taken")
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := d.Get(ctx, keyOf(1), m)
		wantErr(t, err, context.Canceled)
		stop()
		wantErr(t, put(t, d, m, 1, 100), tier.ErrClosed)
		wantErr(t, get(t, d, m, 1, 100), tier.ErrClosed)
		wantErr(t, d.Delete(context.Background(), []key.Key{keyOf(1)}), tier.ErrClosed)
		wantErr(t, d.Sync(context.Background()), tier.ErrClosed)
	})
}

// A chunk that was removed under a lease, with another behind it, is to be tried again until
// the lease ends: it lacks no room, and no Trim helps.
func TestRemovedUnderLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		m := newMemory(t)
		for i := range 2 {
			e := entryOf(t, m, i, 100_000)
			if i > 0 {
				e.Parent = keyOf(0).Hash
			}
			err := d.Put(t.Context(), e)
			if e.Block.Release(); err != nil {
				t.Fatal(err)
			}
		}
		o, held := d.ledger.NewOwner(), make([]ledger.Entry, 2)
		if n, err := d.ledger.Hold(o, ledger.Lease, []key.Key{keyOf(0), keyOf(1)}, held); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		if err := d.Delete(t.Context(), []key.Key{keyOf(0)}); err != nil {
			t.Fatal(err)
		}
		if err := put(t, d, m, 0, 100_000); !errors.Is(err, tier.ErrOff) || errors.Is(err, tier.ErrNoSpace) {
			t.Errorf("put while the removed one is held: %v", err)
		}
		d.ledger.Unhold(o, ledger.Lease, []ledger.ID{held[0].ID, held[1].ID})
		mustPut(t, d, m, 0, 100_000)
		mustGet(t, d, m, 0, 100_000)
		checkBooks(t, d)
	})
}

func TestCloseWithoutRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, err := openRig(o)
		if err != nil {
			t.Fatal(err)
		}
		m := newMemory(t)
		done := make(chan error)
		go func() { done <- put(t, d, m, 1, 5000) }()
		for r, w, _ := d.metaDev.Depths(); r+w == 0; r, w, _ = d.metaDev.Depths() {
			if err := context.Cause(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		wantErr(t, <-done, tier.ErrClosed)
		if err := d.Run(context.Background()); !errors.Is(err, tier.ErrClosed) {
			t.Fatalf("run after close: %v", err)
		}
	})
}

func TestConcurrentPutsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := start(t, testOptions(tiertest.Folder(t)), nil)
		m := newMemory(t)
		var g sync.WaitGroup
		for range 8 {
			g.Go(func() {
				for i := range 20 {
					if err := put(t, d, m, i, 40_000); err != nil {
						t.Error(err)
					}
				}
			})
		}
		g.Wait()
		if s := d.Stats(); s.Puts != 20 || s.Entries != 20 {
			t.Fatalf("%d puts, %d entries; want 20", s.Puts, s.Entries)
		}
		checkBooks(t, d)
	})
}

func TestDirectoryIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := tiertest.Folder(t)
		d, stop := start(t, testOptions(dir), nil)
		if _, err := Open(testOptions(dir)); err == nil || !strings.Contains(err.Error(), "in use by another process") {
			t.Fatalf("second tier on one directory: %v", err)
		}
		_ = d
		stop()
		marker := filepath.Join(dir, folders.FormatName)
		newer := []byte("kvstored-disk 9\nset abc\nwhatever comes\n")
		newer = append(newer, folders.SumLine(newer)...)
		if err := os.WriteFile(marker, newer, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(testOptions(dir)); err == nil || !strings.Contains(err.Error(), "run a newer one") {
			t.Fatalf("a newer program's marker: %v", err)
		}
	})
}

func TestForeignMetaIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.Meta = tiertest.Folder(t)
		_, stop := start(t, o, nil)
		stop()
		o.Paths = []string{tiertest.Folder(t)}
		_, stop = start(t, testOptions(o.Paths[0]), nil)
		stop()
		if _, err := openRig(o); err == nil || !strings.Contains(err.Error(), "belongs to the set") {
			t.Fatalf("meta of another tier: %v", err)
		}
	})
}

func TestOptionsAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, breakIt := range map[string]func(*Options){
			"path":       func(o *Options) { o.Paths = nil },
			"capacity":   func(o *Options) { o.CapacityBytes = 1 },
			"reserve":    func(o *Options) { o.MetaReserveBytes = o.CapacityBytes },
			"policy":     func(o *Options) { o.Policy = "magic" },
			"watermarks": func(o *Options) { o.LowWatermark, o.HighWatermark = 0.9, 0.8 },
			"inline":     func(o *Options) { o.InlineMax = mib },
			"depth":      func(o *Options) { o.IODepth = -1 },
		} {
			o := testOptions(tiertest.Folder(t))
			breakIt(&o)
			if d, err := openRig(o); err == nil {
				_ = d.Close()
				t.Errorf("%s: taken", name)
			}
		}
	})
}

// Many small puts at once, which may or may not go together, are there byte for
// byte, on a file system.
func TestManySmallPuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, stop := start(t, testOptions(t.TempDir()), nil)
		m := newMemory(t)
		var g sync.WaitGroup
		for w := range 32 {
			g.Go(func() {
				for i := w; i < 320; i += 32 {
					if err := put(t, d, m, i, 8_000+i*100); err != nil {
						t.Error(err)
					}
				}
			})
		}
		g.Wait()
		recount(t, d)
		for i := range 320 {
			mustGet(t, d, m, i, 8_000+i*100)
		}
		stop()
	})
}
