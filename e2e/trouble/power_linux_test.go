package trouble

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zeebo/xxh3"
	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/tier/tiertest"
)

var powerRounds = flag.Int("power-rounds", 2, "how often TestPowerFailure takes the power from a daemon's file systems; 100 for a long run")

const (
	powerImage = 200 << 20
	powerDisk  = 128 << 20
	powerSpan  = 2 * time.Second // from the start of the daemon on a new folder, or the first flush
)

// powerDevice is an ext4 of its own, whose device is a file.
type powerDevice struct{ image, dir string }

func newPowerDevice(t *testing.T, dir, name string) powerDevice {
	t.Helper()
	p := powerDevice{filepath.Join(dir, name+".image"), filepath.Join(dir, name)}
	f, err := os.Create(p.image)
	if err == nil {
		err = errors.Join(f.Truncate(powerImage), f.Close(), os.MkdirAll(p.dir, 0o700))
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", p.image).CombinedOutput(); err != nil {
		t.Skipf("no file system can be made here: %v: %s", err, out)
	}
	p.mount(t)
	return p
}

func (p powerDevice) mount(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop", p.image, p.dir).CombinedOutput(); err != nil {
		t.Skipf("no file system can be mounted here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(p.dir, 0) })
}

// copyOf is what the device holds now. The caller has stopped who writes to
// the file system, but the kernel goes on: two copies that are the same are
// the state of one moment.
func (p powerDevice) copyOf(t *testing.T) []byte {
	t.Helper()
	f, err := os.Open(p.image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last []byte
	for range 100 {
		now, err := io.ReadAll(io.NewSectionReader(f, 0, powerImage))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(now, last) {
			return now
		}
		last = now
	}
	t.Fatal("the kernel writes without end")
	return nil
}

// unmount waits for the database's process, which ends after the daemon's.
func (p powerDevice) unmount() (err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = unix.Unmount(p.dir, 0); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return err
}

// restore mounts the file system as it was when the copy was made.
func (p powerDevice) restore(t *testing.T, image []byte) {
	t.Helper()
	err := p.unmount()
	if err == nil {
		err = errors.Join(os.Remove(p.image), os.WriteFile(p.image, image, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	p.mount(t)
}

// At every moment of a folder's life that the power fails, from the first on, the
// daemon starts, and has all of what a durable flush had acknowledged. The file
// systems are real; writes that had not come to the device are lost.
func TestPowerFailure(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var flushed, there int
	for round := range *powerRounds {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			n, all := powerRound(t, rng, 1+round%2, round%2 == 1 || round%4 == 2)
			flushed, there = flushed+all, there+n
		})
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds: %d chunks of flushed chains, %d of them there", *powerRounds, flushed, there)
	if *powerRounds > 1 && flushed == 0 && !t.Failed() {
		t.Error("nothing was flushed before the power failed")
	}
}

// powerRound fails the power at any moment from the start on, or where it is late from the
// first durable flush on.
func powerRound(t *testing.T, rng *rand.Rand, paths int, late bool) (there, all int) {
	dir := tiertest.Folder(t)
	var devices []powerDevice
	var folders []string
	for i := range paths {
		p := newPowerDevice(t, dir, string(rune('a'+i)))
		devices = append(devices, p)
		folders = append(folders, filepath.Join(p.dir, "tier"))
	}
	d := daemon.Folder(t, func(c *config.Config) { c.Disk.Paths, c.Disk.Capacity = folders, powerDisk })

	s := load.NewBook()
	storing := rng.Uint64()
	begun := time.Now()
	images := make([][]byte, paths)
	d.Launch()
	pid := d.Process().Pid
	var clients sync.WaitGroup
	kept, gone := make(chan struct{}), make(chan struct{})
	clients.Go(func() {
		defer close(gone)
		if _, err := d.Ready(t.Context()); err != nil {
			t.Logf("before the power failed: %v", err)
			return
		}
		storeDurably(t, s, d.Socket, storing, sync.OnceFunc(func() { close(kept) }))
	})
	if late {
		select {
		case <-kept:
		case <-gone:
		}
		begun = time.Now()
	}
	time.Sleep(time.Until(begun.Add(time.Duration(rng.Int64N(int64(powerSpan)))))) // the moment, not a wait
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for i, p := range devices {
		images[i] = p.copyOf(t)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	clients.Wait()
	d.Kill()
	for i, p := range devices {
		p.restore(t, images[i])
	}
	otherBoot(t, folders[0])
	d.Start() // after a power failure
	present := s.Check(t, d.Socket, func(n uint64) bool { _, must := s.Flushed[n]; return must })
	for n := range s.Flushed {
		there, all = there+present[n], all+s.Committed[n].Len()
	}
	d.Kill()
	for _, p := range devices {
		if err := p.unmount(); err != nil {
			t.Errorf("unmount: %v", err)
		}
	}
	return there, all
}

// otherBoot has a folder be one that another boot of the machine wrote, as it
// would be after a power failure: see the disk tier's witness.
func otherBoot(t *testing.T, dir string) {
	t.Helper()
	path := filepath.Join(dir, "kvstored.commits")
	b, err := os.ReadFile(path)
	if err != nil || len(b) < 64 || binary.LittleEndian.Uint64(b[len(b)-8:]) != xxh3.Hash(b[:len(b)-8]) {
		return // the power failed before there was any
	}
	clear(b[16:52])
	copy(b[16:52], "another one")
	binary.LittleEndian.PutUint64(b[len(b)-8:], xxh3.Hash(b[:len(b)-8]))
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// storeDurably stores chain after chain and flushes each to the device, until
// that is as much as surely stays there. It calls kept for each that is.
func storeDurably(t *testing.T, s *load.Book, socket string, seed uint64, kept func()) {
	ctx := t.Context()
	c, err := client.Dial(ctx, socket, client.Options{Name: "power", Space: &load.Space})
	if err != nil {
		return // killed already
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(seed, 1))
	for number := uint64(0); s.Moved < powerDisk/3; number++ {
		chain := load.Chain(t, load.Space, number, 1+rng.IntN(6))
		s.Moved += load.Bytes(chain)
		s.Committed[number] = chain
		if err := load.Put(ctx, c, chain); err != nil {
			return
		}
		flushed, err := c.Flush(ctx, true)
		if err != nil {
			return
		}
		if len(flushed.Left) == 0 {
			s.Flushed[number] = chain
			kept()
		}
	}
}
