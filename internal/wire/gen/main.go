package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

func main() {
	root := flag.String("root", ".", "the root of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

// run writes the files below the root of the repository.
func run(root string) error {
	s, err := wiretest.Read(filepath.Join(root, "testdata", "wire", "schema.json"))
	if err != nil {
		return err
	}
	files, err := generated(s)
	if err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generated are the files, by their paths in the repository.
func generated(s *wiretest.Schema) (map[string]string, error) {
	messages, codec, err := golang(s)
	return map[string]string{pythonFile: python(s), structsFile: messages, goFile: codec}, err
}
