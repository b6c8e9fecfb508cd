package daemon

import (
	"bytes"
	"context"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/directory"
	"github.com/kvstored/kvstored/internal/handover"
	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/pages"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// outsider is a client that reads without asking, and goes on after the end of its daemon.
type outsider struct {
	reader *directory.Reader
	mem    []byte
	want   map[key.Key][]byte
}

// outside maps the memory of a daemon that has some prompts, of 4 chunks each.
func outside(t *testing.T, l *life, prompts int) *outsider {
	t.Helper()
	nc, err := net.Dial("unix", l.d.cfg.Listen.Socket)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	conn, err := wire.NewConn(nc, -1)
	if err != nil {
		t.Fatal(err)
	}
	req := &wire.HelloRequest{MinVersion: wire.Version, MaxVersion: wire.Version, Wants: wire.FeatureArena | wire.FeatureDirectory}
	if _, err := conn.Write(wire.AppendRequest(nil, wire.OpHello, 0, req)); err != nil {
		t.Fatal(err)
	}
	_, body, files, err := conn.ReadFrameFiles()
	var hello wire.HelloReply
	if err != nil || hello.Decode(body) != nil || len(files) != 2 || hello.Granted != req.Wants {
		t.Fatalf("%d descriptors, granted %#x, %v", len(files), hello.Granted, err)
	}
	defer handover.CloseAll(files)
	o := &outsider{want: map[key.Key][]byte{}}
	if _, err := pages.Map(files[1], int64(hello.DirectoryBytes), true); err == nil {
		t.Error("a client maps the directory to write")
	}
	found, err := pages.Map(files[1], int64(hello.DirectoryBytes), false)
	if err == nil {
		o.reader, err = directory.Open(found)
	}
	if err == nil {
		o.mem, err = pages.Map(files[0], int64(hello.ArenaBytes), false)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = pages.Unmap(found)
		_ = pages.Unmap(o.mem)
	})
	payloads := map[uint64][]byte{}
	for n := range prompts {
		for i := range 4 {
			payloads[arena.Checksum(bytesOf(n, i))] = bytesOf(n, i)
		}
	}
	for _, k := range l.d.cpu.Ledger().Keys(spaceOf(t)) {
		p, ok := o.reader.Find(k)
		if !ok || payloads[p.Sum] == nil {
			t.Fatalf("chunk %v: found %t, %+v", k, ok, p)
		}
		o.want[k] = payloads[p.Sum]
	}
	if len(o.want) != 4*prompts {
		t.Fatalf("%d chunks are found, of %d", len(o.want), 4*prompts)
	}
	return o
}

func spaceOf(t *testing.T) key.SpaceID {
	t.Helper()
	b, err := key.NewBuilder(handSpace)
	if err != nil {
		t.Fatal(err)
	}
	return b.Space()
}

// readAll reads all chunks once, and returns how many reads held, with and without looking
// at the checksum too. Those that look have the right bytes.
func (o *outsider) readAll(t *testing.T, buf []byte) (held, sound int) {
	t.Helper()
	for k, want := range o.want {
		p, ok := o.reader.Find(k)
		if !ok {
			continue
		}
		n := copy(buf, o.mem[p.Offset:p.Offset+int64(p.Size)])
		sum := arena.Checksum(buf[:n])
		if !o.reader.Holds(p) {
			continue
		}
		held++
		if sum != p.Sum {
			if !o.reader.Kept() {
				t.Errorf("a read of chunk %v holds, and the bytes are wrong", k)
			}
			continue
		}
		sound++
		if !bytes.Equal(buf[:n], want) {
			t.Errorf("chunk %v has other bytes", k)
		}
	}
	return held, sound
}

// readOn reads until stop is called, which returns when the last read has ended.
func (o *outsider) readOn(t *testing.T) (stop func()) {
	var ends atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for buf := make([]byte, 1<<20); !ends.Load(); {
			o.readAll(t, buf)
		}
	}()
	return func() {
		ends.Store(true)
		<-ended
	}
}

// A hand-over ends the directory before the successor writes the arena: a client that goes
// on reading gets right bytes, and none afterwards.
func TestHandOverEndsTheDirectory(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Disk.Capacity = 0
	at := live(t, cfg, false)
	c := connect(t, &cfg)
	for n := range 10 {
		store(t, c, n, 4)
	}
	o := outside(t, at, 10)
	if held, sound := o.readAll(t, make([]byte, 1<<20)); held != 40 || sound != 40 {
		t.Errorf("%d of 40 chunks are read, %d right", held, sound)
	}
	stop := o.readOn(t)
	next := live(t, cfg, true)
	at.await(t)
	c = connect(t, &cfg)
	for n := range 300 { // more than the arena
		store(t, c, 100+n, 4)
	}
	stop()
	if held, _ := o.readAll(t, make([]byte, 1<<20)); held != 0 {
		t.Errorf("%d chunks are found in the directory of a daemon that has handed over", held)
	}
	c.Close()
	next.end(t)
}

// The end of a daemon is that of its directory.
func TestEndOfTheDirectory(t *testing.T) {
	cfg := handedConfig(t)
	at := live(t, cfg, false)
	c := connect(t, &cfg)
	store(t, c, 0, 4)
	o := outside(t, at, 1)
	c.Close()
	at.end(t)
	if held, _ := o.readAll(t, make([]byte, 1<<20)); held != 0 {
		t.Errorf("%d chunks are found after the end", held)
	}
}

// After a kill nothing ends the directory of the dead process, whose arena the next one
// writes: the directory has said so before, and the checksum refuses each wrong byte.
func TestKilledDaemonsDirectory(t *testing.T) {
	cfg := handedConfig(t)
	cfg.Disk.Capacity = 0
	keeping(t, &cfg)
	dead := live(t, cfg, false) // as good as: it has nothing to do any more
	c := connect(t, &cfg)
	for n := range 10 {
		store(t, c, n, 4)
	}
	c.Close()
	o := outside(t, dead, 10)
	if !o.reader.Kept() {
		t.Fatal("the memory is with a keeper, and the directory does not say so")
	}
	other := cfg
	other.Listen.Socket += "2"
	next := adopted(t, dead, other)
	stop := o.readOn(t)
	c = connect(t, &other)
	for n := range 10 {
		wants(t, c, n, 4)
	}
	for n := range 300 {
		store(t, c, 100+n, 4)
	}
	stop()
	held, sound := o.readAll(t, make([]byte, 1<<20))
	if held != 40 || sound == 40 {
		t.Errorf("%d of 40 reads hold, %d with the right checksum: the test tests nothing", held, sound)
	}
	c.Close()
	next.end(t)
	dead.end(t)
}

// adopted is a daemon that goes on with the memory of another one, as after a kill.
func adopted(t *testing.T, dead *life, cfg config.Config) *life {
	t.Helper()
	memory, err := dead.d.arena.Files()
	if err != nil {
		t.Fatal(err)
	}
	var copies []*os.File
	for _, f := range []*os.File{memory.Whole, memory.Clients, dead.d.manifest.File()} {
		c, err := handover.Copy(f)
		if err != nil {
			t.Fatal(err)
		}
		copies = append(copies, c)
	}
	in, err := adopt(&keep.Files{Arena: arena.Files{Whole: copies[0], Clients: copies[1]}, Manifest: copies[2]}, &cfg)
	if err != nil {
		t.Fatal(err)
	}
	l := &life{log: dead.log, ended: make(chan error, 1)}
	if l.d, err = newDaemon(cfg, optionsOf(zerolog.New(l.log)), in, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	go func() { l.ended <- l.d.Run(ctx) }()
	t.Cleanup(stop)
	return l
}

// Without the arena a client gets no directory, and one that does not want it gets what it
// got before.
func TestDirectoryIsAsked(t *testing.T) {
	cfg := smallConfig(t)
	d := serve(t, cfg)
	for wants, want := range map[wire.Features]struct {
		granted wire.Features
		files   int
	}{
		wire.FeatureArena | wire.FeatureStaging:                         {wire.FeatureArena | wire.FeatureStaging, 2},
		wire.FeatureArena | wire.FeatureDirectory | wire.FeatureStaging: {wire.FeatureArena | wire.FeatureDirectory | wire.FeatureStaging, 3},
		wire.FeatureDirectory:                                           {0, 0},
		wire.FeatureDirectory | wire.FeatureStaging:                     {0, 0},
	} {
		nc, err := net.Dial("unix", d.cfg.Listen.Socket)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := wire.NewConn(nc, -1)
		if err != nil {
			t.Fatal(err)
		}
		req := &wire.HelloRequest{MinVersion: wire.Version, MaxVersion: wire.Version, Wants: wants}
		if _, err := conn.Write(wire.AppendRequest(nil, wire.OpHello, 0, req)); err != nil {
			t.Fatal(err)
		}
		_, body, files, err := conn.ReadFrameFiles()
		var hello wire.HelloReply
		if err != nil || hello.Decode(body) != nil {
			t.Fatal(err)
		}
		if hello.Granted != want.granted || len(files) != want.files || int(hello.Descriptors) != want.files {
			t.Errorf("%#x wanted: %#x granted with %d descriptors", wants, hello.Granted, len(files))
		}
		if size := directory.Bytes(int64(hello.ArenaBytes)); (hello.Granted&wire.FeatureDirectory != 0) != (hello.DirectoryBytes == uint64(size)) {
			t.Errorf("%#x wanted: a directory of %d bytes", wants, hello.DirectoryBytes)
		}
		sizes := map[int]uint64{2: hello.StagingBytes, 3: hello.DirectoryBytes}
		if len(files) > 1 {
			if st, err := files[1].Stat(); err != nil || uint64(st.Size()) != sizes[len(files)] {
				t.Errorf("%#x wanted: the second descriptor is of %d bytes, %v", wants, st.Size(), err)
			}
		}
		handover.CloseAll(files)
		nc.Close()
	}
}
