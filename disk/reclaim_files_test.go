package disk

import (
	"context"
	"os"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// Where others fill the file system segments are given back until MinFreeBytes
// are free again, and their space is not taken again at once. The entries of
// other segments stay, and Trim names those that went.
func TestMinFreeIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.MinFreeBytes, o.SegmentBytes = 1<<30, 24*mib, 4*mib
		fs := newSmall(t, &o, 64*mib)
		d, stop := start(t, o, fs)
		defer stop()
		const size = mib / 4
		m := newMemory(t)
		number := make(map[key.Key]int)
		drop := func(out []key.Key) {
			for _, k := range out {
				delete(number, k)
			}
		}
		for i := range 200 {
			if putOrTrim(t, d, m, i, size, drop) {
				number[keyOf(i)] = i
			}
		}
		// tick is what happens every second or two.
		tick := func() {
			for _, v := range d.volumes {
				if err := d.segments.removeIdle(v); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.instance.lookAll(); err != nil {
				t.Fatal(err)
			}
			d.headroom.watch(d.volumes[0].fs)
			out, err := d.Trim(context.Background(), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			drop(out)
		}
		if at := fs.free(); at < o.MinFreeBytes {
			t.Fatalf("%d MiB are left, min free %d", at/mib, o.MinFreeBytes/mib)
		}
		before := len(number)
		for range 10 {
			tick()
		}
		if d.Stats().Counters["evicted_for_min_free"] > 0 {
			t.Fatal("a segment was given back though nobody needs it")
		}
		fs.others.Store(15 * mib)
		for i := 0; fs.free() < o.MinFreeBytes; i++ {
			if tick(); i == 200 {
				t.Fatalf("%d MiB are free, min free %d: %v", fs.free()/mib, o.MinFreeBytes/mib, d.Stats().Counters)
			}
		}
		t.Logf("%d entries before, %d now; %d MiB free", before, len(number), fs.free()/mib)
		if n := len(number); n >= before || n < before-80 {
			t.Errorf("%d entries before, %d after 15 MiB were taken", before, n)
		}
		for i := range 50 { // new entries find their place by eviction
			if putOrTrim(t, d, m, 1000+i, size, drop) {
				number[keyOf(1000+i)] = 1000 + i
			}
			if i%10 == 0 {
				tick()
			}
		}
		if at := fs.free(); at < o.MinFreeBytes {
			t.Errorf("%d MiB are left after more puts, min free %d", at/mib, o.MinFreeBytes/mib)
		}
		if n := d.Stats().Entries; int(n) != len(number) {
			t.Errorf("%d entries; Trim has left %d", n, len(number))
		}
		var ks []int
		for _, i := range number {
			ks = append(ks, i)
		}
		slices.Sort(ks)
		for _, i := range ks {
			mustGet(t, d, m, i, size)
		}
		recount(t, d)
	})
}

// A tier that has filled its file system to the last segment does not take a
// small file of its own for one of others, and gives no segment back.
func TestOwnFilesAreNotOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		o.CapacityBytes, o.SegmentBytes = 1<<30, 4*mib
		fs := newSmall(t, &o, 56*mib)
		d, stop := start(t, o, fs)
		defer stop()
		f := d.volumes[0].fs
		fs.others.Store((f.available.Load() - d.headroom.floor(f)) % o.SegmentBytes)
		if err := d.instance.lookAll(); err != nil {
			t.Fatal(err)
		}
		m := newMemory(t)
		for i := range 220 {
			putOrTrim(t, d, m, i, mib/4, func([]key.Key) {})
		}
		if n := d.Stats().Entries; n == 220 {
			t.Fatal("the file system is not full")
		}
		if err := os.WriteFile(o.Paths[0]+"/learned", make([]byte, 64<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 * shortLooks {
			if err := d.instance.lookAll(); err != nil {
				t.Fatal(err)
			}
			d.headroom.watch(f)
			if _, err := d.Trim(context.Background(), 0, nil); err != nil {
				t.Fatal(err)
			}
		}
		if n := d.Stats().Counters["evicted_for_min_free"]; n > 0 {
			t.Errorf("%d entries were given up for a file of 64 KiB", n)
		}
	})
}

// One Trim at a time empties a segment; another Trim during that empties none.
func TestOneGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, stop := start(t, testOptions(tiertest.Folder(t)), nil)
		defer stop()
		m := newMemory(t)
		for i := range 4 {
			mustPut(t, d, m, i, mib)
		}
		trim := func() int {
			d.volumes[0].fs.short.Store(shortLooks)
			out, err := d.Trim(t.Context(), 0, nil)
			if err != nil {
				t.Fatal(err)
			}
			return len(out)
		}
		d.emptying.Store(true)
		if n := trim(); n > 0 {
			t.Errorf("%d are evicted beside another", n)
		}
		d.emptying.Store(false)
		for range 1000 { // a look may find meanwhile that the file system is not short
			if trim() > 0 {
				return
			}
		}
		t.Error("nothing is ever given back")
	})
}
