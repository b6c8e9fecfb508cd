package database

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	_ "unsafe" // for go:linkname

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"google.golang.org/protobuf/proto"
)

// syncManifest is Badger's own variable. Badger calls it with its list of
// tables when a flush or a compaction has been added to that, and removes the
// files of the tables that the compaction has read only after it returns. The
// caller holds the lock of the list.
//
//go:linkname syncManifest github.com/dgraph-io/badger/v4.syncFunc
var syncManifest func(*os.File) error

// What Badger logs of a compaction, with the number of the compactor first.
// Each time that it has collected the keys of a table, whose number comes
// second, it logs collectedFormat, before it writes the table.
const (
	collectedFormat = "[%d] LOG Compact. Added %d keys. Skipped %d keys. Iteration took: %v"
	failedFormat    = "[Compactor: %d] LOG Compact FAILED with error: %+v: %+v"
)

// retryFormat is what Badger logs of a flush that failed, before it tries again.
const retryFormat = "error flushing memtable to disk: %v, retrying"

// Hook has Badger call a function in place of its own, with each list of tables that is to be
// synced.
func Hook(sync func(*os.File) error) error {
	if syncManifest == nil {
		return fmt.Errorf("this version of Badger does not call what watches over its compactions")
	}
	syncManifest = sync
	return nil
}

// sync ends the process over a change that lacks a table.
func (c *compactions) sync(manifest *os.File) error {
	if err := c.changed(manifest); err != nil {
		c.over(fmt.Sprintf("%v: %v", err, syscall.EIO)) // what it was Badger has not kept
	}
	return manifest.Sync()
}

// compactions ends the process over a compaction that could not write all of its
// tables, before the tables that it has read are removed.
//
// Badger does not look at the error of a table that a compaction could not
// create: in v4.9.6, levels.go:899, a deferred call has its argument evaluated
// before there is an error. The compaction goes on without the table: its records
// are gone, and records that it deleted are there again. So the tables that a
// compaction begins are counted, and so are those that it adds to the list.
// Badger tells of the first by compactor, and of the second it tells nothing, so
// there is one compaction at a time between its first table and its end: another
// one waits before it writes anything.
//
//	idle --first table--> building --all listed--> idle
//	                         |
//	                         +--some missing, or failed--> the process ends
//
// The list is on the device before it is compared. Where the process ends in
// between, takeBackUnfinished does the rest.
//
// Its mutex is a leaf. Badger's lock of the list may be held when it is taken.
type compactions struct {
	dir string
	end func(why string) // ends the process

	mu struct {
		sync.Mutex
		idle     sync.Cond
		building bool
		over     bool // the process ends
		by       int  // the compactor, while building
		begun    int  // tables with a key in them
		listed   map[uint64]badger.TableManifest
	}
}

// watch begins with the list of tables that Badger is about to open.
func (c *compactions) watch(dir string, end func(why string)) error {
	c.dir, c.end = dir, end
	c.mu.idle.L = &c.mu
	listed, err := c.list()
	if os.IsNotExist(err) {
		err = nil
	}
	c.mu.listed = listed
	return err
}

// list reads the list of tables.
func (c *compactions) list() (map[uint64]badger.TableManifest, error) {
	f, err := os.Open(filepath.Join(c.dir, badger.ManifestFilename))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	m, _, err := badger.ReplayManifestFile(f, 0, badger.Options{})
	return m.Tables, err
}

// begin counts a table that a compactor begins. It waits for a compaction of
// another compactor to end.
func (c *compactions) begin(by int, keys uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.mu.building && c.mu.by != by && !c.mu.over {
		c.mu.idle.Wait()
	}
	if c.mu.over {
		c.end("another compaction has ended the process")
	}
	c.mu.building, c.mu.by = true, by
	if keys > 0 {
		c.mu.begun++
	}
}

// over ends the process. Where that is a goroutine, compactors that wait for the end of a
// compaction end behind it: the first words tell why.
func (c *compactions) over(why string) {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.over = true
		c.mu.idle.Broadcast()
	}()
	c.end(why)
}

// failed ends the process over a compaction of a compactor that has begun tables
// and will list none: Badger takes the list that it has in memory for changed.
func (c *compactions) failed(by int, err any) {
	c.mu.Lock()
	building := c.mu.building && c.mu.by == by
	c.mu.Unlock()
	if building {
		c.over(fmt.Sprint("a compaction failed: ", err))
	}
}

// changed compares the list with the one before the change. Where a compaction
// lacks a table it takes the change back in the list, and is an error. It is
// called while no other change can be made, and the tables are still there.
func (c *compactions) changed(manifest *os.File) error {
	now, err := c.list()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	added, removed := missing(now, c.mu.listed), missing(c.mu.listed, now)
	if len(removed) > 0 { // a flush only adds
		if len(added) != c.mu.begun {
			err := fmt.Errorf("a compaction wrote %d of %d tables", len(added), c.mu.begun)
			if failed := takeBack(manifest, swap{added, removed}); failed != nil {
				return fmt.Errorf("%w; it is not taken back: %w", err, failed)
			}
			return fmt.Errorf("%w; it is taken back", err)
		}
		c.mu.building, c.mu.begun = false, 0
		c.mu.idle.Broadcast()
	}
	c.mu.listed = now
	return nil
}

// missing are the tables of a that b lacks.
func missing(a, b map[uint64]badger.TableManifest) map[uint64]badger.TableManifest {
	lacks := make(map[uint64]badger.TableManifest)
	for id, t := range a {
		if _, ok := b[id]; !ok {
			lacks[id] = t
		}
	}
	return lacks
}

// takeBack lists the tables again that a compaction has removed from the list,
// instead of those that it has added.
func takeBack(manifest *os.File, s swap) error {
	changes := new(pb.ManifestChangeSet)
	for id := range s.added {
		changes.Changes = append(changes.Changes, &pb.ManifestChange{Id: id, Op: pb.ManifestChange_DELETE})
	}
	for id, t := range s.removed {
		changes.Changes = append(changes.Changes, &pb.ManifestChange{
			Id: id, Op: pb.ManifestChange_CREATE, Level: uint32(t.Level),
			KeyId: t.KeyID, EncryptionAlgo: pb.EncryptionAlgo_aes, Compression: uint32(t.Compression),
		})
	}
	body, err := proto.Marshal(changes)
	if err != nil {
		return err
	}
	text := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	text = append(append(text, checksumOf(body)...), body...)
	if _, err := manifest.Write(text); err != nil {
		return err
	}
	return manifest.Sync()
}

// checksumOf is that of a set of changes, as it lies before the set.
func checksumOf(body []byte) []byte {
	return binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

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
