package database

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/rs/zerolog"
)

// readers is how many requests beside the commits can be under way, and Pairs how many pairs
// there are.
const (
	readers = 8
	Pairs   = 1 + readers
)

// Options of a database.
type Options struct {
	Dir           string // of Badger; made if missing
	MemTableBytes int64
	MaxValueBytes int64          // of one value
	Log           zerolog.Logger `json:"-"` // told what Badger has to say
}

// Opener opens a database, as Open does.
type Opener func(ctx context.Context, o Options) (*DB, error)

// Process is what a database works in.
type Process interface {
	Pid() int
	// Kill ends it, as soon as the kernel lets go of it.
	Kill()
	// Wait returns once it has ended, and says how. It is called once.
	Wait() string
}

// DB is a database in a process of its own. Its methods are safe for concurrent
// use, but for those of the Batch. Each waits for its answer as long as that
// takes, or until the process has ended: the error then says why it ended.
type DB struct {
	commits *conn
	reads   chan *conn // those that nobody uses
	conns   []*conn
	process Process
	log     zerolog.Logger
	batch   Batch
	held    atomic.Int64  // see HeldBytes
	ended   chan struct{} // closed when the process has

	mu struct {
		sync.Mutex
		killed error // why, by Kill
		death  error // what it ended over; set before ended is closed
	}
}

// Ended is closed when the process has ended.
func (d *DB) Ended() <-chan struct{} { return d.ended }

// Err is what the process ended over; nil before Ended.
func (d *DB) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.death
}

// Ends reports whether an error is one after which the database is of no more
// use: its process has ended, or does not answer.
func Ends(err error) bool {
	var no Refused
	return err != nil && !errors.As(err, &no)
}

// Pid is the process's id.
func (d *DB) Pid() int { return d.process.Pid() }

// open is the first request.
func (d *DB) open(o *Options) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	d.commits.out = append(d.commits.out, text...)
	if _, err := d.commits.ask(opOpen, false); err != nil {
		return d.cause(err)
	}
	return nil
}

// ask sends what fill makes and hands the answer to use.
func (d *DB) ask(what byte, watch bool, fill func(to []byte) []byte, use func(*fields)) error {
	c := <-d.reads
	defer func() { d.reads <- c }()
	if fill != nil {
		c.out = fill(c.out)
	}
	body, err := c.ask(what, watch)
	if err != nil {
		return d.cause(err)
	}
	f := fields{rest: body}
	if use != nil {
		use(&f)
	}
	return f.err
}

// Get hands the values of keys to each: nil for one that is not there. The
// value is the callee's to keep.
func (d *DB) Get(keys [][]byte, each func(i int, value []byte)) error {
	fill := func(to []byte) []byte {
		for _, k := range keys {
			to = appendBytes(to, k)
		}
		return to
	}
	return d.ask(opGet, true, fill, func(f *fields) {
		for i := range keys {
			var value []byte
			if f.byte() == 1 {
				value = f.bytes()
			}
			if f.err == nil {
				each(i, value)
			}
		}
	})
}

// Has reports which of different values some version of a key has, the latest or
// an earlier one. Those in the logs, and in tables that were made of one, are all
// there; of others only the latest.
func (d *DB) Has(key []byte, values [][]byte) (has []bool, err error) {
	fill := func(to []byte) []byte {
		to = appendBytes(to, key)
		for _, v := range values {
			to = appendBytes(to, v)
		}
		return to
	}
	has = make([]bool, len(values))
	err = d.ask(opHas, true, fill, func(f *fields) {
		for i := range has {
			has[i] = f.byte() == 1
		}
	})
	return has, err
}

// Page hands up to n pairs that follow the key after, and have the prefix, to
// each, in order; it may stop before, and more says that it did. Commits may
// come between two pages. What each is given is its to keep.
func (d *DB) Page(prefix, after []byte, n int, each func(k, v []byte) error) (more bool, err error) {
	fill := func(to []byte) []byte {
		to = binary.LittleEndian.AppendUint32(to, uint32(n))
		return appendBytes(appendBytes(to, prefix), after)
	}
	var failed error
	err = d.ask(opPage, true, fill, func(f *fields) {
		more = f.byte() == 1
		for len(f.rest) > 0 && failed == nil {
			k, v := f.bytes(), f.bytes()
			if f.err == nil {
				failed = each(k, v)
			}
		}
	})
	return more, errors.Join(err, failed)
}

// Sync makes all commits survive a power failure.
func (d *DB) Sync() error { return d.ask(opSync, false, nil, nil) }

// Close closes the database and ends its process, and returns when that has
// ended. The DB is of no more use.
func (d *DB) Close() error {
	err := d.ask(opClose, false, nil, nil)
	d.hangUp()
	d.await()
	return err
}

// Hangs reports whether a request other than a Sync has had no answer for so
// long.
func (d *DB) Hangs(long time.Duration) bool {
	return slices.ContainsFunc(d.conns, func(c *conn) bool {
		since := c.since.Load()
		return since != nil && c.now().Sub(*since) > long
	})
}

// Batch is the commit that is being made. There is one; it is used by one
// caller at a time.
func (d *DB) Batch() *Batch { return &d.batch }

// Batch collects the writes of one commit and sends them ahead in parts.
// Nothing that it is given is kept.
type Batch struct {
	d   *DB
	err error
}

// Set writes a pair.
func (b *Batch) Set(key, value []byte) { b.add(writeSet, key, value) }

// Delete deletes a key, which may be missing.
func (b *Batch) Delete(key []byte) { b.add(writeDelete, key, nil) }

func (b *Batch) add(what byte, key, value []byte) {
	c := b.d.commits
	if len(c.out) > headBytes && len(c.out)+len(key)+len(value) > partBytes && b.err == nil {
		c.asked()
		b.err = c.send(opPart)
		c.answered()
	}
	if b.err != nil {
		return
	}
	c.out = appendBytes(appendBytes(append(c.out, what), key), value)
}

// Flush commits, and returns when that survives a kill of both processes. After
// an error a part may be committed; the database is to be closed then.
func (b *Batch) Flush() error {
	err := b.err
	var held []byte
	if err == nil {
		held, err = b.d.commits.ask(opCommit, true)
	}
	b.err, b.d.commits.out = nil, b.d.commits.out[:headBytes]
	if err != nil {
		return b.d.cause(err)
	}
	if len(held) == 8 {
		b.d.held.Store(int64(binary.LittleEndian.Uint64(held)))
	}
	return nil
}

// cause is what an error of a pair comes from.
func (d *DB) cause(err error) error {
	var no Refused
	if errors.As(err, &no) {
		return fmt.Errorf("badger: %w", err)
	}
	d.await()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.mu.killed != nil:
		return d.mu.killed
	case d.mu.death != nil:
		return d.mu.death
	}
	return fmt.Errorf("database: the process does not answer: %w", err)
}

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
