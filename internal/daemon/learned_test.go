package daemon

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/database"
	"github.com/kvstored/kvstored/internal/store"
	"github.com/kvstored/kvstored/internal/test/logtest"
	"github.com/kvstored/kvstored/key"
)

// TestLearnedSurvives: what the policies learned is there after a restart;
// damaged tables are logged and not used; a policy that learns nothing leaves
// no file.
func TestLearnedSurvives(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "s"), ""
	cfg.CPU.Capacity, cfg.CPU.Policy, cfg.CPU.HugePages = 16<<20, "tenure", config.HugePagesOff
	cfg.Disk.Paths, cfg.Disk.Capacity, cfg.Disk.MinFree, cfg.Disk.Policy = []string{dir}, 256<<20, 0, "lru"
	file := filepath.Join(dir, "learned.cpu")

	// restart runs a daemon for as long as do takes, and returns its log.
	restart := func(do func(*Daemon)) string {
		t.Helper()
		var log logtest.Book
		d, err := New(cfg, optionsOf(zerolog.New(&log)))
		if err != nil {
			t.Fatal(err)
		}
		do(d)
		for _, l := range d.learned() {
			if err := l.save(); err != nil {
				t.Error(err)
			}
		}
		d.Close()
		return log.String()
	}
	tables := func(d *Daemon) []byte {
		data, err := d.cpu.Ledger().Planning().Save()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	var want []byte
	if err := os.WriteFile(file+".new", make([]byte, 64<<10), 0o600); err != nil { // of a crash
		t.Fatal(err)
	}
	victim := filepath.Join(t.TempDir(), "victim")
	restart(func(d *Daemon) {
		c := &key.Chain{Hashes: []key.Hash{{1}, {2}}, Tokens: []uint32{256, 256}}
		d.store.Planning.Observe(c, store.Prompt{})
		d.store.Planning.Observe(c, store.Prompt{})
		want = tables(d)
		if err := errors.Join(os.Remove(file+".new"), os.Symlink(victim, file+".new")); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := os.Lstat(victim); err == nil {
		t.Error("it was written through a link")
	}
	if info, err := os.Stat(file); err != nil || info.Size() > 31<<10 {
		t.Errorf("the file is %v, error %v", info, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "learned.disk")); err == nil {
		t.Error("lru has learned something")
	}
	if left, err := filepath.Glob(file + "?*"); len(left) > 0 || err != nil {
		t.Errorf("%v are left, error %v", left, err)
	}
	log := restart(func(d *Daemon) {
		if !bytes.Equal(tables(d), want) {
			t.Error("what was learned is not what was saved")
		}
	})
	if !bytes.Contains([]byte(log), []byte("known again")) {
		t.Error("the log does not say so:\n" + log)
	}
	for what, damage := range map[string]func([]byte) []byte{
		"damaged": func(b []byte) []byte { b[100] ^= 1; return b },
		"newer":   func(b []byte) []byte { b[7]++; return b },
		"cut":     func(b []byte) []byte { return b[:1000] },
	} {
		if err := os.WriteFile(file, damage(bytes.Clone(want)), 0o600); err != nil {
			t.Fatal(err)
		}
		log := restart(func(d *Daemon) {
			if bytes.Equal(tables(d), want) {
				t.Errorf("%s tables are used", what)
			}
		})
		if !bytes.Contains([]byte(log), []byte("it learns anew")) {
			t.Errorf("%s: the log does not say so:\n%s", what, log)
		}
	}
}

// TestLearnedElsewhere: the folder of a disk tier that is not open is left alone.
func TestLearnedElsewhere(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Listen.Socket, cfg.Admin.Listen = filepath.Join(dir, "s"), ""
	cfg.CPU.Capacity, cfg.CPU.Policy, cfg.CPU.HugePages = 16<<20, "tenure", config.HugePagesOff
	folder := filepath.Join(dir, "disk")
	cfg.Disk.Paths, cfg.Disk.Capacity, cfg.Disk.MinFree = []string{folder}, 256<<20, 0
	full := func(context.Context, database.Options) (*database.DB, error) { return nil, syscall.ENOSPC }
	d, err := New(cfg, Options{Log: zerolog.Nop(), Database: full})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if !d.disk.Off() {
		t.Fatal("the disk tier is open without a database")
	}
	d.saveLearned()
	if left, err := filepath.Glob(filepath.Join(folder, "learned.*")); len(left) > 0 || err != nil {
		t.Errorf("%v in the folder of a tier that was never open, error %v", left, err)
	}
}
