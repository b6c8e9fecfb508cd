package disk

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/disk/internal/folders"
	"github.com/kvstored/kvstored/disk/internal/metadata"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
	"github.com/kvstored/kvstored/tier/tiertest"
)

// keep opens a tier, which ends with the test.
func keep(t *testing.T, o Options) *Tier {
	t.Helper()
	k, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- k.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(k.Close(), <-ran); err != nil {
			t.Error(err)
		}
	})
	return k
}

func awaitOpen(t *testing.T, k *Tier) {
	t.Helper()
	await(t, "the tier does not come back", func() bool { return k.Trouble() == nil })
}

// works checks that a tier stores and reads.
func works(t *testing.T, k *Tier, m memory, n int) {
	t.Helper()
	mustPut(t, k, m, n, 100_000)
	mustGet(t, k, m, n, 100_000)
}

// isOff checks what a tier says to each call that is off for a reason.
func isOff(t *testing.T, k *Tier, m memory, why string) {
	t.Helper()
	if err := k.Trouble(); err == nil || !strings.Contains(err.Error(), why) || !k.Off() || !k.Stats().Off {
		t.Errorf("off: %t, for %v, want %s", k.Off(), err, why)
	}
	e := entryOf(t, m, 77, 1000)
	defer e.Block.Release()
	_, get := k.Get(t.Context(), keyOf(1), m)
	_, trim := k.Trim(t.Context(), mib, nil)
	_, scrub := k.Scrub(t.Context(), 0, nil)
	for what, err := range map[string]error{
		"get": get, "put": k.Put(t.Context(), e), "trim": trim, "scrub": scrub, "sync": k.Sync(t.Context()),
		"contains": k.Contains(t.Context(), keysUpTo(1), make([]bool, 1)), "delete": k.Delete(t.Context(), keysUpTo(1)),
		"recover": k.Recover(t.Context(), func([]tier.Record) {}),
	} {
		if !errors.Is(err, tier.ErrOff) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want that it is off, and %s", what, err, why)
		}
	}
}

// What keeps a tier from being opened is no end of the start: it is off, says
// why, and is opened when that has passed.
func TestTierStartsInTrouble(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, o *Options) (heal func(), why string){
		"full": func(t *testing.T, o *Options) (func(), string) {
			var free atomic.Int64
			free.Store(mib)
			o.free = func(string) (int64, error) { return free.Load(), nil }
			return func() { free.Store(128 * mib) }, "make room on its file system"
		},
		"locked database": func(t *testing.T, o *Options) (func(), string) {
			o.IOTimeout = time.Minute // the start gives up the lock before that
			d, err := open(*o)
			if err != nil {
				t.Fatal(err)
			}
			for _, lock := range d.set.Locks {
				_ = lock.Close() // its daemon is gone, its database's process is not
			}
			return func() { _ = d.close() }, "Cannot acquire directory lock"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions(tiertest.Folder(t))
				m := newMemory(t)
				heal, why := hurt(t, &o)
				k := keep(t, o)
				isOff(t, k, m, why)
				if n := k.Room(4096); n != math.MaxInt || k.Has(keyOf(1)) {
					t.Error("it has something")
				}
				heal()
				awaitOpen(t, k)
				if err := k.Recover(t.Context(), func([]tier.Record) {}); err != nil {
					t.Fatal(err)
				}
				works(t, k, m, 1)
			})
		})
	}
}

// A wrong configuration is an error, and so is a folder that is another's.
func TestTierRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		d, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close() //nolint:errcheck
		if _, err := Open(o); err == nil || IsTrouble(err) || !strings.Contains(err.Error(), "in use by another process") {
			t.Errorf("a folder in use: %v", err)
		}
		newer := testOptions(tiertest.Folder(t))
		text := "kvstored-disk 999\nset 1\n"
		if err := os.WriteFile(filepath.Join(newer.Paths[0], folders.FormatName), []byte(text+folders.SumLine([]byte(text))), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(newer); err == nil || IsTrouble(err) || !strings.Contains(err.Error(), "newer") {
			t.Errorf("a newer format: %v", err)
		}
		file := testOptions(filepath.Join(newer.Paths[0], folders.FormatName, "disk"))
		if _, err := Open(file); err == nil || IsTrouble(err) {
			t.Errorf("a file for a folder: %v", err)
		}
		small := testOptions(tiertest.Folder(t))
		small.CapacityBytes = 1
		if _, err := Open(small); err == nil {
			t.Error("a capacity of a byte")
		}
	})
}

// A folder that goes while the tier works is not made anew: the tier is off
// until the folder is back, and then has its entries, its policy, its quotas and
// its settings.
func TestTierFolderGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(filepath.Join(tiertest.Folder(t), "disk"))
		o.IOTimeout = defaultIOTimeout // as long is waited for the end of a database whose folder is gone
		o.Quotas = []ledger.Quota{{Bytes: 40 * mib}}
		var log logtest.Book
		o.Log = zerolog.New(&log)
		m := newMemory(t)
		k := keep(t, o)
		awaitOpen(t, k)
		if err := k.SetPolicy("lfu"); err != nil {
			t.Fatal(err)
		}
		changed := []ledger.QuotaChange{{Quota: ledger.Quota{Bytes: mib}, Was: -1}, {Quota: ledger.Quota{Bytes: 41 * mib}, Was: 0}}
		if err := k.SetQuotas(changed, map[key.SpaceID]int{keyOf(1).Space: 1}); err != nil {
			t.Fatal(err)
		}
		k.SetMinFree(4096)
		works(t, k, m, 1)
		away := o.Paths[0] + ".away"
		if err := os.Rename(o.Paths[0], away); err != nil {
			t.Fatal(err)
		}
		await(t, "it is not noticed", k.Off)
		isOff(t, k, m, "mounted")
		if !k.Has(keyOf(1)) {
			t.Error("what it has is forgotten while it is off")
		}
		if err := os.Mkdir(o.Paths[0], 0o700); err != nil { // as a mount point is
			t.Fatal(err)
		}
		await(t, "it is not tried", func() bool { return strings.Contains(k.Trouble().Error(), "start the daemon again") })
		if files, err := os.ReadDir(o.Paths[0]); err != nil || len(files) > 0 {
			t.Errorf("an empty folder was filled: %v %v", files, err)
		}
		if err := errors.Join(os.Remove(o.Paths[0]), os.Rename(away, o.Paths[0])); err != nil {
			t.Fatal(err)
		}
		awaitOpen(t, k)
		<-k.Reopened()
		got := 0
		if err := k.Recover(t.Context(), func(rs []tier.Record) { got += len(rs) }); err != nil || got != 1 {
			t.Errorf("%d entries are back: %v", got, err)
		}
		mustGet(t, k, m, 1, 100_000)
		works(t, k, m, 2)
		if name := k.Ledger().PolicyName(); name != "lfu" {
			t.Errorf("the policy is %s", name)
		}
		if use := k.Stats().Quotas; len(use) != 2 || use[1].UsedBytes == 0 || use[1].QuotaBytes != 41*mib {
			t.Errorf("quotas %+v", use)
		}
		if n := k.now.Load().o.minFree.Load(); n != 4096 {
			t.Errorf("%d bytes are to stay free, want 4096", n)
		}
	})
}

// A database that is damaged while the tier works, or that cannot be read to its end, is
// moved aside by the next opening. What lies in extents is there.
func TestTierDamagedDatabase(t *testing.T) {
	for name, hurt := range map[string]func(t *testing.T, d *instance){
		"manifest": func(t *testing.T, d *instance) {
			if err := os.WriteFile(filepath.Join(d.db.Dir, "MANIFEST"), []byte("this is none of Badger's"), 0o600); err != nil {
				t.Fatal(err)
			}
			endProcess(t, d)
		},
		"records": func(_ *testing.T, d *instance) { d.db.Damaged(errors.New("a test says so")) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := testOptions(tiertest.Folder(t))
				m := newMemory(t)
				k := keep(t, o)
				works(t, k, m, 1)
				was, before := k.now.Load(), k.Stats()
				hurt(t, was)
				await(t, "it is not opened anew", func() bool { return k.now.Load() != was && k.Trouble() == nil })
				if after := k.Stats(); after.Gets != before.Gets || after.PutBytes != before.PutBytes || before.Gets == 0 {
					t.Errorf("it counts anew: %d gets, %d before", after.Gets, before.Gets)
				}
				if _, err := os.Stat(filepath.Join(o.Paths[0], metadata.DamagedName)); err != nil {
					t.Error(err)
				}
				if err := k.Recover(t.Context(), func([]tier.Record) {}); err != nil {
					t.Fatal(err)
				}
				mustGet(t, k, m, 1, 100_000)
				works(t, k, m, 2)
			})
		})
	}
}

// A tier that is lost after a long time is opened again with the next look at its database;
// one that is lost again waits first.
func TestTierOpensAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, testOptions(tiertest.Folder(t)))
		lose := func() (took time.Duration) {
			was, begun := k.now.Load(), time.Now()
			endProcess(t, was)
			await(t, "it is not opened anew", func() bool { return k.now.Load() != was && k.Trouble() == nil })
			return time.Since(begun)
		}
		time.Sleep(metadata.SteadyAfter + time.Second)
		if took := lose(); took >= 2*reopenEvery {
			t.Errorf("it is open again after %v", took)
		}
		if took := lose(); took < reopenEvery {
			t.Errorf("it is open again after %v, and was lost twice", took)
		}
	})
}

// Close ends a Tier in any state.
func TestTierCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(tiertest.Folder(t))
		k, err := Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(k.Close(), k.Close()); err != nil {
			t.Error(err)
		}
		wantErr(t, k.Sync(t.Context()), tier.ErrClosed)
		if err := k.Run(t.Context()); err != nil && !errors.Is(err, tier.ErrClosed) {
			t.Error(err)
		}
	})
}

func keysUpTo(n int) (ks []key.Key) {
	for i := range n {
		ks = append(ks, keyOf(i))
	}
	return ks
}
