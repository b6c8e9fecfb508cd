package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/replay"
)

// unpackDisk makes a folder what a recording has. Zeros become holes.
func unpackDisk(t *testing.T, recording, folder string) {
	t.Helper()
	f, err := os.Open(recording)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := zstd.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(filepath.Join(folder, h.Name), 0o700)
		} else {
			err = unpackFile(filepath.Join(folder, h.Name), files, h.Size)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpackFile(path string, r io.Reader, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	block, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < size; {
		n, err := io.ReadFull(r, block[:min(int64(len(block)), size-at)])
		if err != nil {
			return errors.Join(err, f.Close())
		}
		if !bytes.Equal(block[:n], zeros[:n]) {
			if _, err := f.WriteAt(block[:n], at); err != nil {
				return errors.Join(err, f.Close())
			}
		}
		at += int64(n)
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// TestDiskFromBeforeGroups: a disk that a program wrote which knew no groups (commit
// c555589: 12 requests of a made-up trace in chunks of 5 KiB, in segments, and of 1 KiB, in
// the database) has all its chunks for a program that does, byte by byte.
func TestDiskFromBeforeGroups(t *testing.T) {
	d := daemonFolder(t)
	cfg, err := config.Load(d.config, nil, config.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	unpackDisk(t, filepath.Join("testdata", "disk-before-groups.tar.zst"), folder)
	cfg.Disk.Paths, cfg.Disk.Capacity, cfg.Disk.SegmentSize = []string{filepath.Join(folder, "disk")}, 256<<20, 64<<20
	configure(t, d, &cfg)
	if _, err := d.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.kill)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if st, err := d.stats(t.Context()); err == nil && !st.Store.Recovering {
			break
		} else if time.Now().After(end) {
			t.Fatal("the disk is not scanned")
		}
	}
	for _, size := range []string{"5KiB", "1KiB"} {
		var r replay.Result
		code, out, errs := kvstored(t, "", "replay", "--trace", madeUpTrace, "--limit", "12", "--payload-bytes", size, "--wait-complete", "--json", "--socket", d.socket)
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != exitOK {
			t.Fatalf("%s: exit code %d, %v, %s", size, code, err, errs)
		}
		if !r.OK() || r.BlockAccesses != 49 || r.BlockHits != 49 || r.StoredBlocks != 0 || r.HitBlocks["disk"] == 0 {
			t.Errorf("%s: %+v; want 49 chunks hit, the first from disk, and none stored", size, r)
		}
	}
}
