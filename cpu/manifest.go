package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
)

// ManifestVersion is that of the format. A file of any other is refused.
const ManifestVersion = 2

// RecordBytes is what each block takes in the file.
const RecordBytes = 96

const (
	magic     = "kvsLIVE\n"
	headerSum = 24 // of what lies before it
	usedAt    = 32
	spaceAt   = 40 // namespace of process numbers
	stopAt    = 64 // policy, and bytes of what it has learned
	stopSum   = 104

	policyBytes = 32
	clientsAt   = 4096
	clientBytes = 16
	learnedAt   = clientsAt + MaxClients*clientBytes
	learnedMost = 512 << 10
	recordsAt   = learnedAt + learnedMost
	checkAt     = RecordBytes - 8

	loose = 1 // the block is in use, and no chunk's
	entry = 2 // it is the payload of a chunk
)

// The errors of Open, wrapped with the reason.
var (
	ErrDamaged = errors.New("manifest: damaged")
	ErrVersion = errors.New("manifest: of another version")
	ErrArena   = errors.New("manifest: of another arena")
)

// Record is one chunk in DRAM.
type Record struct {
	Key    key.Key
	Parent key.Hash // of the chunk before it; zero for the first
	Offset int64    // of its payload in the arena, a multiple of 4 KiB
	Size   uint32   // of the payload in bytes, above 0
	Sum    uint64   // of the payload
	Word   uint64   // what the tier keeps with the entry; see tier.HotValue

	// As of a clean stop; else nothing.
	Hits  uint8 // uses, saturating
	Below uint8 // tiers below that have it, a bit for each
	Dirty bool  // the tiers below lack it
}

// Manifest is a manifest that is being written. Create it with New or Open.
type Manifest struct {
	file  *os.File
	mem   []byte
	used  *atomic.Uint32 // in mem
	last  atomic.Uint64  // number of the record written last
	done  atomic.Bool
	slots sync.Mutex // held to find a free one
}

// NewManifest makes the manifest of an arena of so many bytes, of which nothing is handed out.
func NewManifest(arenaBytes int64) (*Manifest, error) {
	ids := arenaBytes/arena.AlignBytes + 1 // they are dense, and 0 is none
	m := &Manifest{}
	var err error
	if m.file, m.mem, err = newMemory(recordsAt + ids*RecordBytes); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	le := binary.LittleEndian
	copy(m.mem, magic)
	le.PutUint32(m.mem[8:], ManifestVersion)
	le.PutUint32(m.mem[12:], RecordBytes)
	le.PutUint64(m.mem[16:], uint64(arenaBytes))
	le.PutUint64(m.mem[headerSum:], xxh3.Hash(m.mem[:headerSum]))
	le.PutUint64(m.mem[spaceAt:], processSpace())
	m.used = (*atomic.Uint32)(unsafe.Pointer(&m.mem[usedAt]))
	return m, nil
}

// File is the descriptor by which the next process has the manifest. It is the manifest's:
// do not close it.
func (m *Manifest) File() *os.File { return m.file }

// Stop ends a clean stop: the records were put in the order of a policy, each with its
// uses, and learned is what the policy has learned, nil for nothing. Later calls of Put, Use
// and Clear change nothing. An error says that learned is too long to be kept.
func (m *Manifest) Stop(policy string, learned []byte) (err error) {
	if !m.open() {
		return nil
	}
	m.done.Store(true)
	if len(learned) > learnedMost {
		err = fmt.Errorf("manifest: what the policy has learned takes %d bytes, and there is room for %d", len(learned), learnedMost)
		learned = nil
	}
	copy(m.mem[learnedAt:], learned)
	head := m.mem[stopAt:stopSum]
	clear(head)
	copy(head[:policyBytes], policy)
	binary.LittleEndian.PutUint32(head[policyBytes:], uint32(len(learned)))
	binary.LittleEndian.PutUint64(m.mem[stopSum:], stopSumOf(head, learned))
	return err
}

func stopSumOf(head, learned []byte) uint64 { return xxh3.HashSeed(head, xxh3.Hash(learned)) | 1 }

// Finish has the manifest stay as it is: later calls of Put, Use and Clear change nothing.
func (m *Manifest) Finish() {
	if m != nil {
		m.done.Store(true)
	}
}

func (m *Manifest) open() bool { return m != nil && !m.done.Load() }

// Put notes what the block id is from now on. The payload is sealed.
func (m *Manifest) Put(id uint32, r *Record) {
	if !m.open() {
		return
	}
	p := m.begin(id)
	le := binary.LittleEndian
	copy(p, r.Key.Hash[:])
	copy(p[16:], r.Key.Space[:])
	copy(p[32:], r.Parent[:])
	le.PutUint64(p[48:], r.Sum)
	le.PutUint64(p[56:], r.Word)
	p[84], p[85], p[86] = r.Hits, r.Below, 0
	if r.Dirty {
		p[86] = 1
	}
	m.place(p, r.Offset, r.Size, entry)
}

// Use notes that the block id is in use and no chunk's: a client may read it, and the next
// process is not to hand it out at once.
func (m *Manifest) Use(id uint32, off int64, size uint32) {
	if !m.open() {
		return
	}
	p := m.begin(id)
	clear(p[:checkAt])
	m.place(p, off, size, loose)
}

// Clear notes that the block id is nothing any more.
func (m *Manifest) Clear(id uint32) {
	if !m.open() {
		return
	}
	if p := m.record(id); check(p).Load() != 0 {
		check(p).Store(0)
	}
}

func (m *Manifest) record(id uint32) []byte {
	at := recordsAt + int64(id)*RecordBytes
	return m.mem[at : at+RecordBytes : at+RecordBytes]
}

// begin makes a record none while it is written.
func (m *Manifest) begin(id uint32) []byte {
	for used := m.used.Load(); used < id && !m.used.CompareAndSwap(used, id); {
		used = m.used.Load()
	}
	p := m.record(id)
	check(p).Store(0)
	return p
}

// place ends a record. Its check comes last: a process that is killed leaves the stores
// before that, in this order.
func (m *Manifest) place(p []byte, off int64, size uint32, kind uint32) {
	le := binary.LittleEndian
	le.PutUint64(p[64:], m.last.Add(1))
	le.PutUint32(p[72:], uint32(off/arena.AlignBytes))
	le.PutUint32(p[76:], size)
	le.PutUint32(p[80:], kind)
	check(p).Store(sumOf(p))
}

// check is where the check of a record lies, on a boundary of 8 bytes.
func check(p []byte) *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&p[checkAt])) }

// sumOf is the check of a record, which is never 0.
func sumOf(p []byte) uint64 { return xxh3.Hash(p[:checkAt]) | 1 }

// Close gives the memory of the manifest back, unless others have its file.
func (m *Manifest) Close() error {
	if m == nil {
		return nil
	}
	return errors.Join(unix.Munmap(m.mem), m.file.Close())
}

// newMemory makes a file of n bytes in memory and maps it. Pages that are not written
// take no memory.
func newMemory(n int64) (*os.File, []byte, error) {
	f, err := arena.NewMemory("kvstored-manifest", n)
	if err != nil {
		return nil, nil, err
	}
	mem, err := mapMemory(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, mem, nil
}

// mapMemory maps a file whose size cannot change.
func mapMemory(f *os.File) ([]byte, error) {
	const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || seals&fixed != fixed {
		return nil, fmt.Errorf("%w: it is no sealed file in memory", ErrDamaged)
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", st.Size(), err)
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP) // as the arena
	return mem, nil
}
