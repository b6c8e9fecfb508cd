package metadata

import (
	"encoding/binary"
	"io"
	"os"
	"path/filepath"

	"github.com/zeebo/xxh3"
)

const (
	manifestName  = "MANIFEST"
	manifestHead  = 16 // bytes: magic and versions, then the length and the checksum of the first change
	manifestBytes = 8 + 8 + 8
)

// manifest tells Badger's list of tables by its first bytes. The file grows with
// each change, and is replaced once more than 10,000 tables were removed; it
// begins with another change then.
type manifest struct {
	size  uint64 // of those bytes
	first uint64 // length and checksum of the first change
	sum   uint64 // XXH3-64 of all of them
}

// readManifest reads the first n bytes of the manifest in dir, or all if there
// are fewer.
func readManifest(dir string, n int64) (m manifest, err error) {
	f, err := os.Open(filepath.Join(dir, manifestName))
	if err != nil {
		return m, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	text, err := io.ReadAll(io.LimitReader(f, n))
	if err != nil {
		return m, err
	}
	m.size, m.sum = uint64(len(text)), xxh3.Hash(text)
	if len(text) >= manifestHead {
		m.first = binary.LittleEndian.Uint64(text[manifestHead-8:])
	}
	return m, nil
}

// rewritten reports whether m has taken the place of an older one. The first
// change of what Badger rewrites is never empty.
func (m manifest) rewritten(older manifest) bool { return m.first != 0 && m.first != older.first }

func parseManifest(b []byte) manifest {
	le := binary.LittleEndian
	return manifest{le.Uint64(b), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

func (m manifest) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, m.size)
	le.PutUint64(b[8:], m.first)
	le.PutUint64(b[16:], m.sum)
}
