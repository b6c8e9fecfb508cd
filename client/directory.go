package client

import (
	"github.com/kvstored/kvstored/internal/bulk"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/key"
)

// hasDirectory reports whether chunks in DRAM can be found without the daemon.
func (m *mappings) hasDirectory() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.mu.directory != nil
}

// find is where the chunk of k lies, if the directory has it.
func (m *mappings) find(k key.Key) (directory.Place, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.mu.directory == nil {
		return directory.Place{}, false
	}
	return m.mu.directory.Find(k)
}

// read copies the chunk that was found at p into dst, which is as long, and reports whether
// the copy is that chunk. Its checksum alone tells that where a processor may make loads in
// another order than the program, as arm64 may, and where a killed daemon left the arena.
func (m *mappings) read(dst []byte, p directory.Place) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.mu.directory == nil {
		return false
	}
	src := view(m.mu.arena, uint64(p.Offset), p.Size)
	return src != nil && bulk.CopySum(dst, src) == p.Sum && m.mu.directory.Holds(p)
}

// copy copies what lies at off into dst, and returns its checksum. It reports false where
// the arena is not mapped any more.
func (m *mappings) copy(dst []byte, off uint64) (sum uint64, mapped bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	src := view(m.mu.arena, off, uint32(len(dst)))
	if src == nil {
		return 0, false
	}
	return bulk.CopySum(dst, src), true
}
