package database

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/dgraph-io/badger/v4"
)

// state is what a database says of itself, in each transaction anew. Badger reads a log as
// far as it is whole, takes a table for none that its list does not name, and goes on
// without a table that a compaction could not make. So records go, and deleted ones come
// back, without a word: then the sum is another one.
type state struct {
	commits uint64 // transactions there were
	sum     uint64 // of the marks of all records; see markOf
}

const stateBytes = 16

// stateKey is that of the state. Older programs wrote the first of its numbers alone.
func stateKey() []byte { return []byte{prefixCommits} }

func (x *state) put(to []byte) {
	binary.LittleEndian.PutUint64(to, x.commits)
	binary.LittleEndian.PutUint64(to[8:], x.sum)
}

// markOf is what a record adds to the sum; nothing where there is none. Other pairs than
// records add nothing either.
func markOf(k, v []byte) uint64 {
	if v == nil || !isRecord(k) {
		return 0
	}
	return checksum(k, v)
}

func isRecord(k []byte) bool { return bytes.HasPrefix(k, EntryPrefix()) }

// readState is the state of a database that was just opened.
func readState(db *badger.DB) (x state, err error) {
	err = db.View(func(txn *badger.Txn) error {
		v, err := valueOf(txn, stateKey())
		if len(v) >= 8 {
			x.commits = binary.LittleEndian.Uint64(v)
		}
		if len(v) == stateBytes {
			x.sum = binary.LittleEndian.Uint64(v[8:])
		} else if err == nil {
			x.sum, err = sumOf(txn)
		}
		return err
	})
	return x, err
}

// valueOf is a copy of a value; nil for a key that is not there.
func valueOf(txn *badger.Txn, k []byte) ([]byte, error) {
	item, err := txn.Get(k)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return item.ValueCopy(nil)
}

// sumOf adds up the marks of all records.
func sumOf(txn *badger.Txn) (sum uint64, err error) {
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false // they lie beside the keys
	o.Prefix = EntryPrefix()
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Rewind(); it.Valid() && err == nil; it.Next() {
		item := it.Item()
		err = item.Value(func(v []byte) error {
			sum += markOf(item.Key(), v)
			return nil
		})
	}
	return sum, err
}

// check answers whether the sum is that of the records, and mends it if it is told to.
func (s *Server) check(c *conn, f *fields) error {
	s.writing.Lock()
	txn, want := s.db.NewTransaction(false), s.state.sum
	s.writing.Unlock()
	defer txn.Discard()
	sum, err := sumOf(txn)
	if err != nil {
		return err
	}
	c.out = append(c.out, bit(sum == want))
	if f.byte() == 0 || sum == want {
		return f.err
	}
	w := s.write()
	defer w.end()
	w.state.sum += sum - want // commits since have added to it
	w.commit()
	return w.failed
}

func bit(is bool) byte {
	if is {
		return 1
	}
	return 0
}

// appendState appends what the database holds and how many commits it has had to an answer.
// The owner of it holds writing.
func (s *Server) appendState(c *conn) {
	c.out = binary.LittleEndian.AppendUint64(c.out, uint64(s.held()))
	c.out = binary.LittleEndian.AppendUint64(c.out, s.state.commits)
}

// writer writes one commit, in as many transactions as that takes: each has the state that
// it leaves. It holds Server.writing until its end.
type writer struct {
	s      *Server
	txn    *badger.Txn
	note   *badger.Entry // of txn: the state
	state  state
	failed error // over which nothing more is written
}

// write begins a commit.
func (s *Server) write() *writer {
	s.writing.Lock()
	w := &writer{s: s, state: s.state}
	w.begin()
	return w
}

func (w *writer) begin() {
	w.txn = w.s.db.NewTransaction(true)
	w.note = badger.NewEntry(stateKey(), make([]byte, stateBytes))
	w.failed = w.txn.SetEntry(w.note)
}

// apply writes what a frame says.
func (w *writer) apply(body []byte) {
	f := &fields{rest: body}
	for len(f.rest) > 0 && w.failed == nil {
		what, k, v := f.byte(), f.bytes(), f.bytes()
		switch {
		case f.err != nil:
			w.failed = f.err
		case what == writeDelete:
			w.change(k, nil, func() error { return w.txn.Delete(k) })
		default:
			w.change(k, v, func() error { return w.txn.SetEntry(badger.NewEntry(k, v)) })
		}
	}
}

// change makes v the value of k; nil deletes it.
func (w *writer) change(k, v []byte, do func() error) {
	var old []byte
	if isRecord(k) {
		if old, w.failed = valueOf(w.txn, k); w.failed != nil {
			return
		}
	}
	err := do()
	if errors.Is(err, badger.ErrTxnTooBig) {
		if w.commit(); w.failed == nil {
			w.begin()
		}
		if err = w.failed; err == nil {
			err = do()
		}
	}
	w.failed = err
	w.state.sum += markOf(k, v) - markOf(k, old)
}

// commit ends the present transaction.
func (w *writer) commit() {
	if w.failed != nil {
		return
	}
	w.state.commits++
	w.state.put(w.note.Value)
	if w.failed = w.txn.Commit(); w.failed == nil {
		w.s.state = w.state
	}
}

// end lets others write. An open transaction is dropped.
func (w *writer) end() {
	w.txn.Discard()
	w.s.writing.Unlock()
}
