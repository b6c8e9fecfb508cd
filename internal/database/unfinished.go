package database

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"google.golang.org/protobuf/proto"
)

const (
	manifestHead = 8 // bytes before the first set of changes
	setHead      = 8 // its length and its checksum
)

// swap is a change of the list of tables: some take the place of others.
type swap struct {
	added, removed map[uint64]badger.TableManifest
}

// takeBackUnfinished takes the last compaction back in the list of tables, if the
// process may have ended before that was compared: the list is written first, and
// what a failing device ends the process over may come in between. Badger removes
// the tables that were read only after the comparison, so a compaction is one of
// these as long as all of them are there; one that is taken back in vain is made
// again. It is called before Badger opens the database, which removes tables that
// are not listed.
func takeBackUnfinished(dir string) (tables int, err error) {
	path := filepath.Join(dir, badger.ManifestFilename)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	last, end := lastSwap(text)
	if last == nil || !allThere(dir, last.removed) {
		return 0, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // takeBack has synced
	if err := f.Truncate(end); err != nil {
		return 0, err
	}
	if _, err := f.Seek(end, 0); err != nil {
		return 0, err
	}
	if err := takeBack(f, *last); err != nil {
		return 0, fmt.Errorf("take back a compaction that did not end: %w", err)
	}
	return len(last.removed), nil
}

// lastSwap is the last compaction in a manifest; nil where there is none, or where it
// is taken back, or where the manifest is damaged, which is Badger's to tell. Its
// whole sets end at end; what follows was not written to its end.
func lastSwap(text []byte) (last *swap, end int64) {
	listed := make(map[uint64]badger.TableManifest)
	for end = manifestHead; int(end) < len(text); {
		changes, n, err := nextSet(text[end:])
		if err != nil {
			return nil, end
		}
		if n == 0 {
			break
		}
		end += int64(n)
		if s := applySet(listed, changes); len(s.removed) > 0 {
			last = &s
		}
	}
	if last == nil || !isCompaction(*last) || listedOf(listed, last.removed) > 0 || listedOf(listed, last.added) < len(last.added) {
		return nil, end
	}
	return last, end
}

// listedOf is how many of the tables are listed.
func listedOf(listed, tables map[uint64]badger.TableManifest) (n int) {
	for id := range tables {
		if _, is := listed[id]; is {
			n++
		}
	}
	return n
}

// nextSet decodes the set of changes that text begins with, which is n bytes long; 0
// where that is cut off.
func nextSet(text []byte) (changes []*pb.ManifestChange, n int, err error) {
	if len(text) < setHead {
		return nil, 0, nil
	}
	size := int(binary.BigEndian.Uint32(text))
	if size > len(text)-setHead {
		return nil, 0, nil
	}
	body := text[setHead : setHead+size]
	if !bytes.Equal(checksumOf(body), text[4:setHead]) {
		return nil, 0, errors.New("a set of changes does not have its checksum")
	}
	var set pb.ManifestChangeSet
	err = proto.Unmarshal(body, &set)
	return set.Changes, setHead + size, err
}

// applySet applies changes to the list, and returns their sum.
func applySet(listed map[uint64]badger.TableManifest, changes []*pb.ManifestChange) swap {
	s := swap{make(map[uint64]badger.TableManifest), make(map[uint64]badger.TableManifest)}
	for _, c := range changes {
		if c.Op == pb.ManifestChange_DELETE {
			if t, is := listed[c.Id]; is {
				s.removed[c.Id] = t
			}
			delete(listed, c.Id)
			continue
		}
		t := badger.TableManifest{Level: uint8(c.Level), KeyID: c.KeyId, Compression: options.CompressionType(c.Compression)}
		s.added[c.Id], listed[c.Id] = t, t
	}
	return s
}

// isCompaction tells a compaction, whose tables have higher numbers than those that
// it has read, from the taking back of one.
func isCompaction(s swap) bool {
	if len(s.added) == 0 {
		return true
	}
	return slices.Min(slices.Collect(maps.Keys(s.added))) > slices.Max(slices.Collect(maps.Keys(s.removed)))
}

// allThere reports whether the files of all tables are there. Badger empties a file
// before it removes it.
func allThere(dir string, tables map[uint64]badger.TableManifest) bool {
	for id := range tables {
		info, err := os.Stat(table.NewFilename(id, dir))
		if err != nil || info.Size() == 0 {
			return false
		}
	}
	return true
}
