package server

import (
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// ack is a commit of some slots by one writer of a fill.
type ack struct {
	by    uint64     // connection
	chain *key.Chain // that names slots without keys from its first chunk behind the skipped ones on; else nil
}

// acks are the writers of a fill and the keys that they gave to its slots. The mutex of
// the fill guards them.
type acks struct {
	writers map[uint64]uint64 // the bit of each, by connection
	names   []key.Key         // of slots without keys that some writer has committed
}

// acknowledge counts a writer in, and returns its bit. It is an error where there are
// others enough, or where they have given the slots other keys. The mutex is held.
func (f *fill) acknowledge(a *ack, from, to int) (writer uint64, err error) {
	if f.writers == 1 {
		return 1, nil
	}
	m := &f.mu.acks
	writer, known := m.writers[a.by]
	if !known && len(m.writers) == f.writers {
		return 0, refuse(wire.CodeBadRequest, "fill %d has its %d writers already, and this connection is none; reserve for more", f.id, f.writers)
	}
	if err := f.name(a.chain, from, to); err != nil {
		return 0, err
	}
	if !known {
		if m.writers == nil {
			m.writers = make(map[uint64]uint64, f.writers)
		}
		writer = 1 << len(m.writers)
		m.writers[a.by] = writer
	}
	return writer, nil
}

// name gives slots without keys those of a chain, unless another writer gave them
// others.
func (f *fill) name(chain *key.Chain, from, to int) error {
	if chain == nil {
		return nil
	}
	m := &f.mu.acks
	if m.names == nil {
		m.names = make([]key.Key, len(f.mu.slots))
	}
	for i := from; i < to; i++ {
		if s := &f.mu.slots[i]; s.acks != 0 && m.names[i] != chain.Key(chain.Skip+i-from) {
			return refuse(wire.CodeBadRequest, "slot %d of fill %d was named %x by another writer, and is %x now; all writers must send the same chain", i, f.id, m.names[i].Hash, chain.Key(chain.Skip+i-from).Hash)
		}
	}
	for i := from; i < to; i++ {
		m.names[i] = chain.Key(chain.Skip + i - from)
	}
	return nil
}
