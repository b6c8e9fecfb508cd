package client

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

var givenSpace = key.Space{Model: "m", World: 1, DType: "u8", ChunkTokens: 4, Method: key.Given}

// directed is a client of a fake daemon whose directory says what the test puts there. The
// prompt has one chunk, which lies in the block.
func directed(t *testing.T, script func(*fake)) (c *Client, d *directory.Directory, b arena.Block, p Prompt, k key.Key) {
	t.Helper()
	a := newArena(t, false)
	b, _ = sealed(t, a, "the payload of the chunk")
	t.Cleanup(b.Release)
	mem, file, err := arena.NewReadOnly("directory", directory.Bytes(1<<20))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { arena.CloseReadOnly(mem, file) })
	if d, err = directory.New(mem, 1<<20); err != nil {
		t.Fatal(err)
	}
	id, err := givenSpace.ID()
	if err != nil {
		t.Fatal(err)
	}
	s := inlineSetup()
	s.options.Space = &givenSpace
	s.hello.Space = wire.SpaceInfo{Handle: 1, ChunkTokens: 4, ID: id}
	s.hello.Granted |= wire.FeatureArena | wire.FeatureDirectory
	s.hello.ArenaBytes, s.hello.DirectoryBytes = 1<<20, uint64(directory.Bytes(1<<20))
	s.files = []*os.File{a.File(), file}
	hash := make([]byte, 16)
	hash[3] = 7
	k = key.Key{Space: id, Hash: key.Hash(hash)}
	return mustDial(t, s, script), d, b, Hashes(16, hash, []uint32{4}), k
}

func readOne(t *testing.T, c *Client, p Prompt) (string, error) {
	t.Helper()
	var dst []byte
	n, err := Read(testContext(t), c, p, ReadOptions{}, func(_, size int) []byte {
		dst = make([]byte, size)
		return dst
	})
	if n == 0 {
		return "", err
	}
	return string(dst), err
}

// TestReadAsksWhereBytesAreWrong: what does not have the checksum of the directory is asked
// for, and is corrupt if the daemon says the same of it.
func TestReadAsksWhereBytesAreWrong(t *testing.T) {
	refOf := make(chan wire.Ref, 2)
	c, d, b, p, k := directed(t, func(f *fake) {
		f.reply(f.expect(wire.OpRead, new(wire.ReadRequest)), wire.EmptyReply{}) // of the first
		for range 2 {
			f.reply(f.expect(wire.OpPrefetch, new(wire.PrefetchRequest)), &wire.PrefetchReply{Job: 5, State: wire.JobState{Ready: ready(1), Refs: refs(<-refOf)}})
			f.reply(f.expect(wire.OpRelease, new(wire.IDRequest)), &wire.ReleaseReply{})
		}
		f.pong()
	})
	right := wire.Ref{Offset: uint64(b.Offset()), Length: uint32(b.Len()), Sum: b.Sum()}
	d.Put(k, b.Offset(), uint32(b.Len()), b.Sum())
	if got, err := readOne(t, c, p); err != nil || got != "the payload of the chunk" {
		t.Fatalf("%q, %v by the directory", got, err)
	}
	d.Put(k, b.Offset(), uint32(b.Len()), b.Sum()+1)
	refOf <- right
	if got, err := readOne(t, c, p); err != nil || got != "the payload of the chunk" {
		t.Errorf("%q, %v by a lease", got, err)
	}
	wrong := right
	wrong.Sum++
	refOf <- wrong
	if got, err := readOne(t, c, p); !errors.Is(err, ErrCorrupt) || got != "" {
		t.Errorf("%q, %v of wrong bytes", got, err)
	}
}

// TestReadOfAnEndedDaemon: its memory is read no longer than a glance is old.
func TestReadOfAnEndedDaemon(t *testing.T) {
	leave := make(chan struct{})
	c, d, b, p, k := directed(t, func(*fake) { <-leave })
	d.Put(k, b.Offset(), uint32(b.Len()), b.Sum())
	if _, err := readOne(t, c, p); err != nil {
		t.Fatal(err)
	}
	close(leave)
	for end := time.Now().Add(time.Minute); ; {
		got, err := readOne(t, c, p)
		if errors.Is(err, ErrDisconnected) && got == "" {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%q, %v after the end of the daemon", got, err)
		}
	}
}

// TestReadIsTold: of a read the daemon is told with the next request, and of 64, or after a
// second, without one. A client that is told that it may not read asks from then on.
func TestReadIsTold(t *testing.T) {
	var told atomic.Bool
	var begun atomic.Pointer[time.Time] // of the reads that no request follows
	c, d, b, p, k := directed(t, func(f *fake) {
		hear := func() (request, int) {
			var m wire.ReadRequest
			r := f.expect(wire.OpRead, &m)
			for ch := range m.Reads.All() {
				if ch.Space != 1 || ch.Width != 16 || key.Hash(ch.Hashes) != (key.Hash{3: 7}) || ch.LastTokens != 0 || ch.Skip != 0 {
					f.t.Errorf("told of %+v", ch)
				}
			}
			return r, m.Reads.Len()
		}
		r, n := hear()
		if n != 1 {
			f.t.Errorf("told of %d reads with the next request, want 1", n)
		}
		f.reply(r, wire.EmptyReply{})
		f.reply(f.expect(wire.OpPing, wire.EmptyRequest{}), wire.EmptyReply{})
		for r, n = hear(); n != mostUntold; r, n = hear() {
			if n > mostUntold || time.Since(*begun.Load()) < untoldFor {
				f.t.Errorf("told of %d reads, want %d", n, mostUntold)
			}
			f.reply(r, wire.EmptyReply{}) // this machine took a second for them
		}
		f.refuse(r, ErrDenied, "not any more")
		told.Store(true)
		for r = f.next(); r.Op == wire.OpRead; r = f.next() { // before the client has heard
			f.refuse(r, ErrDenied, "not any more")
		}
		if r.Op != wire.OpPrefetch {
			f.t.Errorf("the client sent %s", r.Op)
		}
		f.refuse(r, ErrDenied, "no")
	})
	d.Put(k, b.Offset(), uint32(b.Len()), b.Sum())
	read := func() error {
		_, err := readOne(t, c, p)
		return err
	}
	if err := read(); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	begun.Store(&now)
	if err := c.Ping(testContext(t)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; {
		err := read()
		if errors.Is(err, ErrDenied) {
			break
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("%v, and the daemon said no", err)
		}
	}
	if !told.Load() {
		t.Error("the daemon was never told of 64 reads")
	}
}

// TestUntoldIsBounded: long prompts are told of before there are 64.
func TestUntoldIsBounded(t *testing.T) {
	c := mustDial(t, inlineSetup(), func(f *fake) { f.drain() })
	ch := wire.Chain{Form: wire.FormHashes, Width: 16, Hashes: make([]byte, 16<<10)}
	most := 0
	for range 100 {
		c.link.told(t.Context(), &ch)
		most = max(most, len(c.link.untold.mu.reads))
	}
	if most > mostUntoldBytes {
		t.Errorf("%d bytes wait", most)
	}
}

// TestReadBesideAReader: a read finds out that the daemon has ended where another caller reads
// from the socket, and has not come to it yet.
func TestReadBesideAReader(t *testing.T) {
	leave := make(chan struct{})
	c, _, _, _, _ := directed(t, func(*fake) { <-leave })
	<-c.link.reader
	defer func() { c.link.reader <- struct{}{} }()
	if !c.link.unaskedMay() {
		t.Fatal("no read of a daemon that lives")
	}
	close(leave)
	for end := time.Now().Add(time.Minute); c.link.unaskedMay(); {
		if time.Now().After(end) {
			t.Fatal("reads of a daemon that has ended")
		}
	}
}

// TestUntoldWhereNothingIsSent: reads gather up to a bound where another request is being
// written, and also where what was to be sent is kept.
func TestUntoldWhereNothingIsSent(t *testing.T) {
	c := mustDial(t, inlineSetup(), func(f *fake) { f.drain() })
	l, ended := c.link, endedContext()
	<-l.writer
	short := wire.Chain{Form: wire.FormHashes, Width: 16, Hashes: make([]byte, 16)}
	long := wire.Chain{Form: wire.FormHashes, Width: 16, Hashes: make([]byte, 48<<10)}
	for _, ch := range []*wire.Chain{&short, &long} {
		for range 2 * wire.MaxReads {
			l.told(ended, ch)
		}
		if u := &l.untold; u.mu.n > wire.MaxReads || len(u.mu.reads) > mostUntoldBytes+len(long.Hashes)+1<<10 {
			t.Fatalf("%d reads of %d bytes wait", u.mu.n, len(u.mu.reads))
		}
		for range 10 {
			kept, err := l.gather(0, nil)
			if err != nil {
				t.Fatal(err)
			}
			l.keepLate(kept)
			l.told(ended, ch)
		}
		if n := len(l.mu.late.first); n > 3*mostUntoldBytes {
			t.Fatalf("%d bytes are kept", n)
		}
	}
	l.writer <- struct{}{}
	if err := c.link.send(t.Context(), 0, nil); err != nil {
		t.Fatal(err)
	}
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
