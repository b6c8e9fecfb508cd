package conformance_test

import (
	"encoding/binary"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/internal/wire/wiretest"
)

// newerDaemon stands between clients and a daemon of today, and makes of each of its
// replies and pushes what a newer daemon may send instead, with a push of a kind before
// it that is not known yet. It returns its socket.
func newerDaemon(t *testing.T, socket string) string {
	t.Helper()
	schema, err := wiretest.Read(filepath.Join(daemon.Root(), "testdata", "wire", "schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(filepath.Dir(socket), "newer")
	l, err := net.Listen("unix", own)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	serving.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				if err := passNewer(schema, nc.(*net.UnixConn), socket); err != nil {
					t.Errorf("newer daemon: %v", err)
				}
			})
		}
	})
	return own
}

// passNewer serves one client until it leaves.
func passNewer(schema *wiretest.Schema, client *net.UnixConn, socket string) error {
	defer client.Close()
	nc, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	real := nc.(*net.UnixConn)
	defer real.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		_, _ = io.Copy(real, client)
		_ = real.Close() // which ends the other direction
	})
	for {
		frame, oob, err := readFrame(real)
		if err != nil {
			return nil //nolint:nilerr // the client has left
		}
		out := schema.Newer(frame)
		if wire.DecodeHeader(frame).Op != wire.OpHello { // whose reply is the first frame
			push := wire.Header{BodyBytes: 8, Kind: wire.KindPush, Op: 99, ID: 1}
			out = append(append(push.Append(nil), "whatever"...), out...)
		}
		n, _, err := client.WriteMsgUnix(out, oob, nil)
		closePassed(oob)
		if err == nil {
			_, err = client.Write(out[n:])
		}
		if err != nil {
			return nil //nolint:nilerr // it has left
		}
	}
}

// closePassed closes the descriptors of a control message.
func closePassed(oob []byte) {
	messages, _ := syscall.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, _ := syscall.ParseUnixRights(&messages[i])
		for _, fd := range fds {
			_ = syscall.Close(fd)
		}
	}
}

// readFrame reads a frame and the control message that came with its first byte, whose
// descriptors are the caller's.
func readFrame(c *net.UnixConn) (frame, oob []byte, err error) {
	frame, oob = make([]byte, wire.HeaderBytes), make([]byte, syscall.CmsgSpace(4*wire.MaxFiles))
	n, oobn, _, _, err := c.ReadMsgUnix(frame, oob)
	if err != nil {
		return nil, nil, err
	}
	if _, err := io.ReadFull(c, frame[n:]); err != nil {
		return nil, nil, err
	}
	body := make([]byte, binary.LittleEndian.Uint32(frame))
	if _, err := io.ReadFull(c, body); err != nil {
		return nil, nil, err
	}
	return slices.Concat(frame, body), oob[:oobn], nil
}

// TestNewerDaemon: with the additions of a newer daemon in each frame, the clients of today
// do and see what the conformance scripts say.
func TestNewerDaemon(t *testing.T) {
	for _, path := range scripts(t) {
		t.Run("Go", func(t *testing.T) { conform(t, newerDaemon(t, daemon.Start(t).Socket), path) })
	}
	t.Run("Python", func(t *testing.T) {
		python := need.Python(t)
		tests := exec.CommandContext(t.Context(), python, "-B", "-m", "unittest", "tests.test_conformance")
		tests.Dir, tests.Env = filepath.Join(daemon.Root(), "clients", "python"), append(os.Environ(), "CONFORMANCE_SOCKET="+newerDaemon(t, daemon.Start(t).Socket))
		if out, err := tests.CombinedOutput(); err != nil || !strings.Contains(string(out), "Ran 1 test") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
