package recorded_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/lab/replay"
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
	folder := t.TempDir()
	unpackDisk(t, filepath.Join("testdata", "disk-before-groups.tar.zst"), folder)
	d := daemon.Start(t, func(c *config.Config) {
		c.Disk.Paths, c.Disk.Capacity = []string{filepath.Join(folder, "disk")}, 256<<20
	})
	trace := filepath.Join(daemon.Root(), "lab", "simulate", "testdata", "separating.jsonl")
	for _, size := range []string{"5KiB", "1KiB"} {
		r := daemon.MustJSON[replay.Result](t, "lab", "replay", "--trace", trace, "--limit", "12", "--payload-bytes", size, "--wait-complete", "--socket", d.Socket)
		if !r.OK() || r.BlockAccesses != 49 || r.BlockHits != 49 || r.StoredBlocks != 0 || r.HitBlocks["disk"] == 0 {
			t.Errorf("%s: %+v; want 49 chunks hit, the first from disk, and none stored", size, r)
		}
	}
}
