package database

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dgraph-io/badger/v4"
)

// checkManifest is an error where there are tables or logs, and no manifest,
// which Badger makes before all others: it would take that for a new database
// and remove the tables. What a manifest has lost the caller must know.
func checkManifest(dir string) error {
	_, err := os.Stat(filepath.Join(dir, badger.ManifestFilename))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	tables, _ := filepath.Glob(filepath.Join(dir, "*.sst")) // the pattern is a good one
	if n := len(tables) + len(logs(dir)); n > 0 {
		return fmt.Errorf("the manifest is missing beside %d tables and logs", n)
	}
	return nil
}
