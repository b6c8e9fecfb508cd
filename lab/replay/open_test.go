package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestOpen(t *testing.T) {
	const (
		text = "some text\n"
		bz2  = "\x42\x5a\x68\x39\x31\x41\x59\x26\x53\x59\x10\x69\x62\xf5\x00\x00\x03\x51\x80\x00\x10\x40\x00\x02\x02\x8c\x40\x20\x00\x22\x03\x1a\x84\x30\x22\x72\xd7\x18\x1e\x2e\xe4\x8a\x70\xa1\x20\x20\xd2\xc5\xea"
	)
	dir := t.TempDir()
	var gz, zst bytes.Buffer
	zip := gzip.NewWriter(&gz)
	std, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []io.WriteCloser{zip, std} {
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range map[string][]byte{"plain": []byte(text), "a.jsonl.gz": gz.Bytes(), "a.jsonl.zst": zst.Bytes(), "b.jsonl": zst.Bytes(), "named.gz": []byte(text), "a.bz2": []byte(bz2)} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(f)
		if string(got) != text || err != nil || f.Close() != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		// The same bytes cut short are an error, never a shorter trace.
		if err := os.WriteFile(path, content[:len(content)-6], 0o600); err != nil {
			t.Fatal(err)
		}
		if f, err = Open(path); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(f); (err == nil) != (name == "plain" || name == "named.gz") {
			t.Errorf("%s, cut: error %v", name, err)
		}
		f.Close()
	}
	for begins, said := range map[string]string{"\xfd7zXZ\x00": "unpack it first", "PK\x03\x04\x14": "a zip archive", "\xff\xfe{\x00": "make it UTF-8"} {
		path := filepath.Join(dir, "other")
		if err := os.WriteFile(path, []byte(begins), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("%q: error %v", begins, err)
		}
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: error %v", err)
	}
}
