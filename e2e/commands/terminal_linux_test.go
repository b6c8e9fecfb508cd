package commands_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// openTerminal is both ends of a terminal of 100 x 30.
func openTerminal(t *testing.T) (screen, inside *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		need.Missing(t, "there are no terminals here: %v", err)
	}
	t.Cleanup(func() { screen.Close() })
	fd := int(screen.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	if inside, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inside.Close() })
	return screen, inside
}

// terminal is a command that runs in one.
type terminal struct {
	*testing.T
	screen, inside *os.File
	cmd            *exec.Cmd
	before         *unix.Termios
	drawn          chan []byte
	all            bytes.Buffer
}

func inTerminal(t *testing.T, cmd *exec.Cmd) *terminal {
	t.Helper()
	x := &terminal{T: t, cmd: cmd, drawn: make(chan []byte, 4096)}
	x.screen, x.inside = openTerminal(t)
	x.before = x.settings()
	cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = x.inside, x.inside, x.inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := x.screen.Read(b)
			if err != nil {
				return
			}
			x.drawn <- bytes.Clone(b[:n])
		}
	}()
	return x
}

// wait returns once a text was drawn.
func (x *terminal) wait(text string) {
	x.Helper()
	for late := time.After(time.Minute); !strings.Contains(x.all.String(), text); {
		select {
		case b := <-x.drawn:
			x.all.Write(b)
		case <-late:
			_ = x.cmd.Process.Kill()
			x.Fatalf("%q does not appear: %q", text, x.all.String())
		}
	}
}

func (x *terminal) press(key string) {
	x.Helper()
	if _, err := x.screen.WriteString(key); err != nil {
		x.Error(err)
	}
}

// leave presses q, and returns once the command has ended.
func (x *terminal) leave() {
	x.Helper()
	x.press("q")
	ended := make(chan error, 1)
	go func() { ended <- x.cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				x.Error(err)
			}
			return
		case b := <-x.drawn:
			x.all.Write(b)
		}
	}
}

func (x *terminal) settings() *unix.Termios {
	x.Helper()
	now, err := unix.IoctlGetTermios(int(x.inside.Fd()), unix.TCGETS)
	if err != nil {
		x.Fatal(err)
	}
	return now
}

// TestTopTerminal: in a real terminal the command draws what a daemon does, follows a
// key, and gives the terminal back as it was.
func TestTopTerminal(t *testing.T) {
	start(t)
	cmd := exec.Command(daemon.Program(t), "top", "--every", "100ms")
	cmd.Env = os.Environ()
	x := inTerminal(t, cmd)
	x.wait("hit ratio")
	during := x.settings()
	x.press("5")
	x.wait("kvstored command") // itself, among the clients
	x.leave()
	if after := x.settings(); after.Lflag != x.before.Lflag || after.Iflag != x.before.Iflag || during.Lflag&unix.ECHO != 0 {
		t.Errorf("the terminal's settings are %b before the command, %b during it, and %b after it", x.before.Lflag, during.Lflag, after.Lflag)
	}
}
