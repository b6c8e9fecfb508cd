package blockio

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/internal/arena"
)

// Payloads that are written together lie one after the other from the offset
// on, and nothing else is touched.
func TestWriteVAt(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck
	page := func(c byte) []byte { return bytes.Repeat([]byte{c}, arena.AlignBytes) }
	if _, err := f.Write(bytes.Repeat(page('.'), 6)); err != nil {
		t.Fatal(err)
	}
	n, err := directFile{f}.WriteVAt([][]byte{page('a'), page('b'), page('c')}, 2*arena.AlignBytes)
	if err != nil || n != 3*arena.AlignBytes {
		t.Fatalf("%d bytes: %v", n, err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, c := range []byte("..abc.") {
		want = append(want, page(c)...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the file is not what was written")
	}
}
