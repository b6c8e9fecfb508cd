package tiertest

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// The shares of its capacity between which Memory.Trim works.
const (
	memoryHigh = 0.95
	memoryLow  = 0.90
)

// recoverBatch is how many records Memory hands over at a time; odd, so that
// batches end in the middle of things.
const recoverBatch = 7

// Memory is a bounded tier in plain memory with the simplest code that
// fulfils the contract: least recently used first, leaves first. Its
// chunks outlive it through Reopen. It is safe for concurrent use.
type Memory struct {
	name     string
	capacity int64

	mu struct {
		sync.Mutex
		entries map[key.Key]*memoryEntry
		order   []key.Key // least recently used first
		used    int64
		stats   tier.Stats
		syncs   int
		closed  bool
	}
}

type memoryEntry struct {
	tier.Record
	payload []byte
}

var (
	_ tier.Resident  = (*Memory)(nil)
	_ tier.Recoverer = (*Memory)(nil)
	_ tier.Summed    = (*Memory)(nil)
)

// NewMemory makes an empty tier of that name and capacity in bytes.
func NewMemory(name string, capacity int64) *Memory {
	m := &Memory{name: name, capacity: capacity}
	m.mu.entries = make(map[key.Key]*memoryEntry)
	return m
}

// Reopen closes m and returns what a new process would find.
func (m *Memory) Reopen() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	n := NewMemory(m.name, m.capacity)
	n.mu.entries, n.mu.order, n.mu.used = m.mu.entries, m.mu.order, m.mu.used
	m.mu.entries, m.mu.order = nil, nil
	return n
}

// Damage flips a bit of the payload under k.
func (m *Memory) Damage(k key.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.mu.entries[k].payload
	p[len(p)/2] ^= 1
}

// Syncs is how often Sync was called.
func (m *Memory) Syncs() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.syncs
}

// usable is called with the mutex held.
func (m *Memory) usable(ctx context.Context, op string) error {
	err := ctx.Err()
	if m.mu.closed {
		err = tier.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", m.name, op, err)
	}
	return nil
}

// Name implements tier.Tier.
func (m *Memory) Name() string { return m.name }

// Contains implements tier.Tier.
func (m *Memory) Contains(ctx context.Context, ks []key.Key, have []bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, "contains"); err != nil {
		return err
	}
	for i, k := range ks {
		have[i] = m.mu.entries[k] != nil
	}
	return nil
}

// Get implements tier.Tier.
func (m *Memory) Get(ctx context.Context, k key.Key, a tier.Allocator) (arena.Block, error) {
	e, err := m.read(ctx, k)
	if err != nil {
		return arena.Block{}, err
	}
	b, err := a.Alloc(ctx, len(e.payload))
	if err != nil {
		return arena.Block{}, fmt.Errorf("%s: get: %w", m.name, err)
	}
	b.SealSum(b.Write(e.payload))
	if b.Sum() == e.Sum {
		return b, nil
	}
	b.Release()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.remove(k)
	m.mu.stats.Corrupt++
	return arena.Block{}, fmt.Errorf("%s: get: %w", m.name, tier.ErrCorrupt)
}

// read returns a copy, so that nothing is allocated under the mutex.
func (m *Memory) read(ctx context.Context, k key.Key) (memoryEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, "get"); err != nil {
		return memoryEntry{}, err
	}
	e := m.mu.entries[k]
	if e == nil {
		return memoryEntry{}, fmt.Errorf("%s: get: %w", m.name, tier.ErrNotFound)
	}
	m.mu.stats.Gets++
	m.mu.stats.GetBytes += uint64(len(e.payload))
	return memoryEntry{e.Record, bytes.Clone(e.payload)}, nil
}

// Put implements tier.Tier.
func (m *Memory) Put(ctx context.Context, e tier.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, "put"); err != nil {
		return err
	}
	if m.mu.entries[e.Key] != nil {
		return nil
	}
	if m.mu.used+occupied(e.Size) > m.capacity {
		return fmt.Errorf("%s: put: %w", m.name, tier.ErrNoSpace)
	}
	m.mu.entries[e.Key] = &memoryEntry{e.Record, bytes.Clone(e.Block.Bytes())}
	m.mu.order = append(m.mu.order, e.Key)
	m.mu.used += occupied(e.Size)
	m.mu.stats.Puts++
	m.mu.stats.PutBytes += uint64(e.Size)
	return nil
}

// Delete implements tier.Tier.
func (m *Memory) Delete(ctx context.Context, ks []key.Key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, "delete"); err != nil {
		return err
	}
	for _, k := range ks {
		m.remove(k)
	}
	return nil
}

// remove is called with the mutex held.
func (m *Memory) remove(k key.Key) {
	e := m.mu.entries[k]
	if e == nil {
		return
	}
	delete(m.mu.entries, k)
	m.mu.order = slices.DeleteFunc(m.mu.order, func(o key.Key) bool { return o == k })
	m.mu.used -= occupied(e.Size)
}

// occupied counts in whole pages, as an arena does.
func occupied(n uint32) int64 { return arena.RoundUp(int64(n)) }

// Has implements tier.Resident.
func (m *Memory) Has(k key.Key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.entries[k] != nil
}

// Sum implements tier.Summed.
func (m *Memory) Sum(k key.Key) (sum uint64, size uint32, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.mu.entries[k]; e != nil {
		return e.Sum, e.Size, true
	}
	return 0, 0, false
}

// Touch implements tier.Resident.
func (m *Memory) Touch(ks []key.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range slices.Backward(ks) {
		if m.mu.entries[k] != nil {
			m.mu.order = slices.DeleteFunc(m.mu.order, func(o key.Key) bool { return o == k })
			m.mu.order = append(m.mu.order, k)
		}
	}
}

// Trim implements tier.Resident.
func (m *Memory) Trim(ctx context.Context, n int64, out []key.Key) ([]key.Key, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.usable(ctx, "trim"); err != nil {
		return out, err
	}
	if m.mu.used+n <= int64(float64(m.capacity)*memoryHigh) {
		return out, nil
	}
	for m.mu.used > 0 && m.mu.used+n > int64(float64(m.capacity)*memoryLow) {
		k := m.victim()
		m.mu.stats.Evictions++
		m.mu.stats.EvictedBytes += uint64(m.mu.entries[k].Size)
		m.remove(k)
		out = append(out, k)
	}
	return out, nil
}

// victim is the least recently used entry that is no other one's parent.
func (m *Memory) victim() key.Key {
	parents := make(map[key.Key]bool)
	for k, e := range m.mu.entries {
		parents[key.Key{Space: k.Space, Hash: e.Parent}] = true
	}
	for _, k := range m.mu.order {
		if !parents[k] {
			return k
		}
	}
	panic("tiertest: parents form a cycle")
}

// Recover implements tier.Recoverer; the order is that of a map.
func (m *Memory) Recover(ctx context.Context, emit func([]tier.Record)) error {
	m.mu.Lock()
	var recs []tier.Record
	for _, e := range m.mu.entries {
		recs = append(recs, e.Record)
	}
	err := m.usable(ctx, "recover")
	m.mu.Unlock()
	for part := range slices.Chunk(recs, recoverBatch) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			break
		}
		emit(part)
	}
	return err
}

// Records implements tier.Recoverer.
func (m *Memory) Records(ctx context.Context, ks []key.Key) (recs []tier.Record, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range ks {
		if e := m.mu.entries[k]; e != nil {
			recs = append(recs, e.Record)
		}
	}
	return recs, m.usable(ctx, "records")
}

// Sync implements tier.Recoverer.
func (m *Memory) Sync(ctx context.Context) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.syncs++
	return m.usable(ctx, "sync")
}

// Stats implements tier.Tier.
func (m *Memory) Stats() tier.Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.stats
	s.Entries = int64(len(m.mu.entries))
	for _, e := range m.mu.entries {
		s.PayloadBytes += int64(e.Size)
	}
	s.UsedBytes, s.CapacityBytes = m.mu.used, m.capacity
	return s
}

// Close implements tier.Tier.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.closed = true
	return nil
}
