package metadata

import (
	"io"
	"os"
	"path/filepath"

	"github.com/kvstored/kvstored/disk/internal/blockio"
)

// spareFiles is how many files Badger may open besides those that its folder
// has: the folder itself, a few times, and the files that it makes.
const spareFiles = 8

// rehearse opens all that Badger will open in dir, all at once, and tells what
// the machine has against it: Badger would end the process, or say so when it
// has opened a part, which it then leaves open. All else is left to Badger.
func rehearse(dir string) (err error) {
	var files []*os.File
	defer func() {
		for _, f := range files {
			_ = f.Close() // nothing was written
		}
		if err != nil && !IsEnvironment(err) {
			err = nil
		}
	}()
	names, err := os.ReadDir(dir)
	try := func(path string, flag int) {
		var f *os.File
		if f, err = os.OpenFile(path, flag, 0); err == nil {
			files = append(files, f)
		}
	}
	for _, name := range names {
		if err == nil && isBadgers(name) {
			try(filepath.Join(dir, name.Name()), os.O_RDWR)
		}
	}
	for range spareFiles {
		if err == nil {
			try(dir, os.O_RDONLY)
		}
	}
	return err
}

// isBadgers tells a file of Badger's from a foreign one in its folder.
func isBadgers(f os.DirEntry) bool {
	switch filepath.Ext(f.Name()) {
	case ".sst", ".mem", ".vlog":
		return f.Type().IsRegular()
	}
	switch f.Name() {
	case "MANIFEST", "KEYREGISTRY", "DISCARD":
		return true
	}
	return false
}

// readAll reads all files of a database, and tells what the machine has against
// that.
func readAll(dir string) error {
	names, err := os.ReadDir(dir)
	piece := make([]byte, blockio.PieceBytes)
	for _, name := range names {
		if err == nil && isBadgers(name) {
			err = readFile(filepath.Join(dir, name.Name()), piece)
		}
	}
	if err != nil && !IsEnvironment(err) {
		return nil // files come and go
	}
	return err
}

func readFile(path string, piece []byte) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	_, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{f}, piece)
	return err
}
