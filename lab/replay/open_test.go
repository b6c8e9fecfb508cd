package replay

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func TestOpen(t *testing.T) {
	const text = "some text\n"
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
	for name, content := range map[string][]byte{"plain": []byte(text), "a.jsonl.gz": gz.Bytes(), "a.jsonl.zst": zst.Bytes(), "b.jsonl": zst.Bytes(), "named.gz": []byte(text)} {
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
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: error %v", err)
	}
}
