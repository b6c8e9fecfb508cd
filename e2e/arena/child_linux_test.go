package arena_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// childVar makes the test binary play a client in a process of its own: its
// value is an order, and descriptor 3, if there is one, is what the daemon
// passed to it.
const childVar = "KVSTORED_ARENA_TEST_CHILD"

type order struct {
	Play   string
	Size   int
	Nobody bool // give up root first
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVar); text != "" {
		if err := play(text); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(text string) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if o.Nobody {
		if err := becomeNobody(); err != nil {
			return err
		}
	}
	switch o.Play {
	case "attack":
		return attack(3, o.Size, o.Nobody)
	case "mlock":
		return mlockTooMuch()
	}
	return fmt.Errorf("unknown play %q", o.Play)
}

// becomeNobody gives up root in this process; the test binary itself lies
// where only its owner may run it.
func becomeNobody() error {
	const nobody = 65534
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(nobody); err != nil {
		return err
	}
	if err := syscall.Setuid(nobody); err != nil {
		return err
	}
	// Else its own /proc entries would be root's, and refuse everything.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
}

// client is a running child.
type client struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
}

func startClient(t *testing.T, o order, f *os.File) *client {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	c := &client{t: t, cmd: exec.Command(os.Args[0])}
	// The race detector would sleep for a second before it exits.
	c.cmd.Env = append(os.Environ(), childVar+"="+string(text), "GORACE=atexit_sleep_ms=0")
	c.cmd.Stderr = t.Output()
	if f != nil {
		c.cmd.ExtraFiles = []*os.File{f}
	}
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.out = bufio.NewReader(stdout)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.kill)
	return c
}

// wait lets the client come to its end, which must be a success.
func (c *client) wait() {
	c.t.Helper()
	c.stdin.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Fatalf("client: %v", err)
	}
}

// kill ends the client, if it has not ended, and reaps it.
func (c *client) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}
