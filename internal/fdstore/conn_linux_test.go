package fdstore

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/socket"
)

// pair is the two ends of a connection.
func pair(t *testing.T) (a, b *Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = dial(path, time.Minute); err != nil {
		t.Fatal(err)
	}
	raw, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if b, err = NewConn(raw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// A message arrives whole with its descriptors, also with as many as may be.
func TestSendAndReceive(t *testing.T) {
	a, b := pair(t)
	f, err := arena.NewMemory("test", 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("what it says"), 0); err != nil {
		t.Fatal(err)
	}
	many := make([]*os.File, MaxFiles)
	for i := range many {
		many[i] = f
	}
	if err := a.Send(Message{Step: Keep, Program: "v1", Over: true}, time.Minute, many...); err != nil {
		t.Fatal(err)
	}
	got, files, err := b.await(Keep, time.Minute)
	if err != nil || len(files) != MaxFiles || !got.Over || got.Program != "v1" {
		t.Fatalf("%+v with %d files, %v", got, len(files), err)
	}
	defer socket.CloseFiles(files)
	text := make([]byte, 12)
	if _, err := files[MaxFiles-1].ReadAt(text, 0); err != nil || string(text) != "what it says" {
		t.Errorf("%q, %v", text, err)
	}
	if err := a.Send(Message{Step: Keep}, time.Minute, slices.Concat(many, many)...); err == nil {
		t.Error("more descriptors than may be")
	}
	if err := a.Send(Message{Step: Failed, Why: strings.Repeat("x", maxBytes)}, time.Minute); err == nil {
		t.Error("a longer message than may be")
	}
}

// Garbage, other messages, the end and silence are told.
func TestReceiveRefuses(t *testing.T) {
	frame := func(text string) string {
		return string(binary.LittleEndian.AppendUint32(nil, uint32(len(text)))) + text
	}
	for name, c := range map[string]struct{ bytes, want string }{
		"another step":    {frame(`{"step":"keep","version":2}`), `says "keep", and taken was to come`},
		"another version": {frame(`{"step":"taken","version":9}`), "speaks version 9"},
		"a failure":       {frame(`{"step":"failed","version":2,"program":"p","why":"no room"}`), "(p) says: no room"},
		"no JSON":         {frame(`step: taken`), "invalid character"},
		"too long":        {"\xff\xff\xff\x7f", "are the most"},
		"half a message":  {frame(`{"step":"taken"}`)[:9], "EOF"},
		"half a length":   {"\x01\x00", "EOF"},
		"nothing":         {"", ErrEnded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t)
			if _, err := a.c.Write([]byte(c.bytes)); err != nil {
				t.Fatal(err)
			}
			a.Close()
			if _, _, err := b.await(Taken, time.Minute); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Receive: %v", err)
			}
		})
	}
	_, b := pair(t)
	if _, _, err := b.await(Taken, 10*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("silence: %v", err)
	}
}

// A process of another user is at neither end, though the mode of the socket admits it.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "kvstored-test-") // others may enter it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	asNobody(t, func() {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
	})
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewConn(c); err == nil || !strings.Contains(err.Error(), "user 65534 is at the other end") {
		t.Errorf("NewConn: %v", err)
	}
	own := filepath.Join(dir, "own")
	var foreign net.Listener
	asNobody(t, func() { foreign, err = net.Listen("unix", own) })
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := dial(own, time.Minute); err == nil || !strings.Contains(err.Error(), "user 65534") {
		t.Errorf("Dial: %v", err)
	}
}

// asNobody runs f in a thread of another user.
func asNobody(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		const nobody, keep = 65534, ^uintptr(0)
		if _, _, err := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, nobody, keep); err != 0 {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}
