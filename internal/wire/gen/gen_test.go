package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// TestNothingIsLeftToGenerate: the files in the tree are as the program prints them.
func TestNothingIsLeftToGenerate(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	s, err := wiretest.Read(filepath.Join(root, "testdata", "wire", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := generated(s)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		have, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if text != string(have) {
			t.Errorf("%s is not what the schema says: go generate ./internal/wire/gen", name)
		}
	}
}
