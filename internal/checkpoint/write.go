package checkpoint

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/key"
)

// chunkBytes is how much is written at a time.
const chunkBytes = 1 << 20

// Writer writes one checkpoint. The file is none before Close has returned without an
// error: its header comes last.
type Writer struct {
	to      io.WriterAt
	head    header
	buf     []byte
	at      int64 // where buf goes
	sum     xxh3.Hasher
	numbers map[key.SpaceID]uint32
	spaces  []byte
	last    key.SpaceID // most entries are of the space of the one before
	number  uint32      // of last
	err     error       // the first one
}

// NewWriter begins a checkpoint of an arena of so many bytes, whose entries are in the
// order of a policy of this name. to is the caller's to close.
func NewWriter(to io.WriterAt, arenaBytes int64, policy string) (*Writer, error) {
	if len(policy) > policyBytes {
		return nil, fmt.Errorf("checkpoint: the name of the policy %q is longer than %d bytes", policy, policyBytes)
	}
	return &Writer{
		to: to, head: header{arenaBytes: uint64(arenaBytes), policy: policy}, at: headerBytes,
		buf: make([]byte, 0, chunkBytes), numbers: make(map[key.SpaceID]uint32),
	}, nil
}

// Add writes the next entry. An error is that of Close.
func (w *Writer) Add(r *Record) {
	space := w.number
	if len(w.spaces) == 0 || r.Key.Space != w.last {
		space = w.numberOf(r.Key.Space)
	}
	r.put(w.room(RecordBytes), space)
	w.head.records++
}

// numberOf numbers the spaces in the order in which they come.
func (w *Writer) numberOf(id key.SpaceID) uint32 {
	n, ok := w.numbers[id]
	if !ok {
		n = uint32(len(w.numbers))
		w.numbers[id] = n
		w.spaces = append(w.spaces, id[:]...)
	}
	w.last, w.number = id, n
	return n
}

// room is the next n bytes of the file, at most chunkBytes.
func (w *Writer) room(n int) []byte {
	if len(w.buf)+n > cap(w.buf) {
		w.flush()
	}
	w.buf = w.buf[:len(w.buf)+n]
	return w.buf[len(w.buf)-n:]
}

func (w *Writer) flush() {
	if w.err != nil || len(w.buf) == 0 {
		w.buf = w.buf[:0]
		return
	}
	_, _ = w.sum.Write(w.buf) // it has no error
	_, w.err = w.to.WriteAt(w.buf, w.at)
	w.at += int64(len(w.buf))
	w.buf = w.buf[:0]
}

// Close ends the checkpoint with the parts of the arena that are not to be used, and
// what the policy has learned.
func (w *Writer) Close(voids []Void, learned []byte) error {
	w.head.spaces, w.head.voids, w.head.learned = uint64(len(w.numbers)), uint64(len(voids)), uint64(len(learned))
	w.append(w.spaces)
	for _, v := range voids {
		p := w.room(voidBytes)
		binary.LittleEndian.PutUint64(p, uint64(v.Offset))
		binary.LittleEndian.PutUint64(p[8:], uint64(v.Bytes))
	}
	w.append(learned)
	w.flush()
	if w.err == nil {
		var head [headerBytes]byte
		w.head.put(head[:], w.sum.Sum64())
		_, w.err = w.to.WriteAt(head[:], 0)
	}
	if w.err != nil {
		return fmt.Errorf("checkpoint: write: %w", w.err)
	}
	return nil
}

func (w *Writer) append(p []byte) {
	for len(p) > 0 {
		n := min(len(p), chunkBytes)
		copy(w.room(n), p)
		p = p[n:]
	}
}
