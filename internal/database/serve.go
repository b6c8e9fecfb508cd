package database

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"github.com/dgraph-io/badger/v4"
)

// Main serves a database and ends the process, if this one was started for
// that. A program that uses Open calls it before it does anything else.
func Main() {
	if os.Args[0] == processName {
		os.Exit(serve())
	}
}

// firstPair is the descriptor of the first pair.
const firstPair = 3

// serve returns the exit code. It mostly ends otherwise: with its parent.
func serve() int {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE) // for the daemon, which still needs it
	// The first to go where memory is short: the cache in DRAM is worth more. Where that
	// is refused it is as likely as others.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	syscall.Umask(0o077) // of this process only: what Badger makes is its user's
	var pairs []net.Conn
	for i := range Pairs {
		f := os.NewFile(uintptr(firstPair+i), "pair")
		c, err := net.FileConn(f)
		if err != nil {
			fmt.Fprintln(os.Stderr, "the database is no command: the daemon starts it:", err)
			return 1
		}
		_ = f.Close() // the connection has its own
		pairs = append(pairs, c)
	}
	s := &Server{
		Words: os.Stderr,
		Lost:  func() { os.Exit(0) }, // what is committed lies in the page cache
		Exit:  func() { os.Exit(1) },
	}
	if s.Serve(pairs) != nil {
		return 1
	}
	return 0
}

// Server is the database on the other side of the pairs.
type Server struct {
	Words io.Writer              // gets what Badger has to say
	Lost  func()                 // is called when the other end of a pair is gone; the pair is not served any more
	Exit  func()                 // ends the process, or the goroutine that is to end it; it does not return
	Try   func(dir string) error // opens what would end the process if it cannot be opened; nil: it may end
	// Hook is that of the package for one of several databases, whose folder is dir; nil: there is one.
	Hook func(dir string, sync func(*os.File) error) error
	Gone func() // ends a goroutine of Badger's that fails for ever, once no call waits for it; nil: the process ends

	db      *badger.DB
	dir     string
	old     []string // logs of earlier processes, which become tables
	size    size
	writing sync.Mutex // held by a commit, and while the logs are emptied

	compacting sync.Mutex // held before writing
	watched    compactions

	using  sync.RWMutex // held by what reads, and by a close
	closed bool

	syncing  sync.Mutex
	unsynced error // of the first sync that failed
}

func (s *Server) hook(dir string, sync func(*os.File) error) error {
	if s.Hook == nil {
		return Hook(sync)
	}
	return s.Hook(dir, sync)
}

// Serve works until the other ends of all pairs are gone, and closes the database then, or
// until an opening has failed.
func (s *Server) Serve(pairs []net.Conn) error {
	conns := make([]*conn, len(pairs))
	for i, pair := range pairs {
		conns[i] = newConn(pair)
	}
	switch err := s.open(conns[0]); {
	case s.db == nil:
		return err
	case err != nil:
		s.Lost()
	default:
		var work sync.WaitGroup
		for _, c := range conns[1:] {
			work.Go(func() { s.read(c) })
		}
		s.commit(conns[0])
		work.Wait()
	}
	hangUp(pairs)
	_ = s.close() // the caller is gone, and cannot be told
	return nil
}

func (s *Server) open(c *conn) error {
	_, body, err := c.receive()
	if err != nil {
		return err
	}
	var o Options
	err = json.Unmarshal(body, &o)
	if err == nil {
		s.dir, s.old = o.Dir, logs(o.Dir)
		s.db, err = s.openBadger(&o)
	}
	return errors.Join(err, answer(c, err))
}

// answer sends the bytes in c.out, or the error.
func answer(c *conn, err error) error {
	if err == nil {
		return c.send(ansDone)
	}
	c.out = append(c.out[:headBytes], err.Error()...)
	return c.send(ansError)
}

// read answers requests until the other end is gone.
func (s *Server) read(c *conn) {
	for {
		what, body, err := c.receive()
		if err == nil {
			err = answer(c, s.do(c, what, body))
		}
		if err != nil {
			s.Lost()
			return
		}
	}
}

// do appends the answer to out. What Badger panics over is an error, for it may
// be one record; a fault cannot be caught.
func (s *Server) do(c *conn, what byte, body []byte) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%v", r)
		}
	}()
	if what == opClose {
		return s.close()
	}
	if what == opSync || what == opCompact { // a close does not wait for a device
		return s.settle(what)
	}
	s.using.RLock()
	defer s.using.RUnlock()
	if s.closed {
		return badger.ErrDBClosed
	}
	f := &fields{rest: body}
	switch what {
	case opGet:
		return s.db.View(func(txn *badger.Txn) error { return get(c, txn, f) })
	case opPage:
		return s.db.View(func(txn *badger.Txn) error { return page(c, txn, f) })
	case opHas:
		return s.db.View(func(txn *badger.Txn) error { return has(c, txn, f) })
	case opSize:
		s.appendHeld(c)
		return nil
	}
	return fmt.Errorf("there is no request %d", what)
}

// settle syncs or compacts. It reads no mapping, so that a close need not wait for it.
func (s *Server) settle(what byte) error {
	s.using.RLock()
	closed := s.closed
	s.using.RUnlock()
	switch {
	case closed:
		return badger.ErrDBClosed
	case what == opSync:
		return s.sync()
	}
	return s.compact()
}

// close closes the database once what reads it has ended: its mappings go.
func (s *Server) close() error {
	s.using.Lock()
	defer s.using.Unlock()
	s.closed = true
	return s.db.Close()
}

func get(c *conn, txn *badger.Txn, f *fields) error {
	for len(f.rest) > 0 {
		k := f.bytes()
		if f.err != nil {
			return f.err
		}
		item, err := txn.Get(k)
		if errors.Is(err, badger.ErrKeyNotFound) {
			c.out = append(c.out, 0)
			continue
		}
		if err == nil {
			err = item.Value(func(v []byte) error {
				c.out = appendBytes(append(c.out, 1), v)
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// page says first whether there is more.
func page(c *conn, txn *badger.Txn, f *fields) error {
	n, prefix, after := f.number(), f.bytes(), f.bytes()
	if f.err != nil {
		return f.err
	}
	c.out = append(c.out, 0)
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false // they lie beside the keys
	o.Prefix = prefix
	it := txn.NewIterator(o)
	defer it.Close()
	for it.Seek(slices.MaxFunc([][]byte{prefix, after}, bytes.Compare)); it.Valid(); it.Next() {
		item := it.Item()
		if string(item.Key()) == string(after) {
			continue
		}
		if n == 0 || len(c.out) > pageBytes {
			c.out[headBytes] = 1
			return nil
		}
		n--
		c.out = appendBytes(c.out, item.Key())
		err := item.Value(func(v []byte) error {
			c.out = appendBytes(c.out, v)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// has looks at all versions of a key that compaction has left.
func has(c *conn, txn *badger.Txn, f *fields) error {
	k := f.bytes()
	wanted := make(map[string]int)
	from := len(c.out)
	for len(f.rest) > 0 {
		wanted[string(f.bytes())] = len(c.out)
		c.out = append(c.out, 0)
	}
	if f.err != nil {
		c.out = c.out[:from]
		return f.err
	}
	o := badger.DefaultIteratorOptions
	o.PrefetchValues = false
	it := txn.NewKeyIterator(k, o)
	defer it.Close()
	for it.Rewind(); it.Valid(); it.Next() {
		err := it.Item().Value(func(v []byte) error {
			if at, is := wanted[string(v)]; is {
				c.out[at] = 1
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// commit writes until the other end is gone. Badger keeps the bodies of a
// commit's parts until that is over.
func (s *Server) commit(c *conn) {
	var wb *badger.WriteBatch
	var failed error
	for {
		what, body, err := c.receive()
		if err != nil {
			s.Lost()
			if wb != nil {
				wb.Cancel()
				s.writing.Unlock()
			}
			return
		}
		if wb == nil {
			s.writing.Lock()
			wb = s.db.NewWriteBatch()
		}
		if failed == nil {
			failed = apply(wb, body)
		}
		s.size.mu.Lock()
		s.size.mu.added += 2 * int64(len(body))
		s.size.mu.Unlock()
		if what == opPart {
			continue
		}
		if failed == nil {
			failed = wb.Flush()
		}
		if failed == nil {
			s.appendHeld(c)
		} else {
			wb.Cancel() // waits for what Badger has begun, as a Flush that fails early does not
		}
		s.writing.Unlock()
		if answer(c, failed) != nil {
			s.Lost()
			return
		}
		wb, failed = nil, nil
	}
}

func apply(wb *badger.WriteBatch, body []byte) error {
	f := &fields{rest: body}
	for len(f.rest) > 0 {
		what, k, v := f.byte(), f.bytes(), f.bytes()
		if f.err != nil {
			return f.err
		}
		var err error
		if what == writeDelete {
			err = wb.Delete(k)
		} else {
			err = wb.SetEntry(badger.NewEntry(k, v))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
