package main

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
)

// openTerminal is both ends of a terminal of 100 x 30.
func openTerminal(t *testing.T) (screen, inside *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
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

// TestTopTerminal: in a real terminal the command draws what a daemon does, follows a
// key, and gives the terminal back as it was.
func TestTopTerminal(t *testing.T) {
	d := startDaemon(t)
	screen, inside := openTerminal(t)
	before, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "top", "--every", "100ms", "--socket", d)
	cmd.Env = append(os.Environ(), commandVar+"=1", "TERM=xterm-256color")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inside, inside, inside
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	drawn := make(chan []byte, 4096)
	go func() {
		for b := make([]byte, 4096); ; {
			n, err := screen.Read(b)
			if err != nil {
				return
			}
			drawn <- bytes.Clone(b[:n])
		}
	}()
	var all bytes.Buffer
	wait := func(text string) {
		t.Helper()
		for late := time.After(20 * time.Second); !strings.Contains(all.String(), text); {
			select {
			case b := <-drawn:
				all.Write(b)
			case <-late:
				_ = cmd.Process.Kill()
				t.Fatalf("%q does not appear: %q", text, all.String())
			}
		}
	}
	press := func(key string) {
		if _, err := screen.WriteString(key); err != nil {
			t.Error(err)
		}
	}
	wait("hit ratio")
	press("5")
	wait("kvstored command") // itself, among the clients
	press("q")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for done := false; !done; {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			done = true
		case b := <-drawn:
			all.Write(b)
		}
	}
	if after, err := unix.IoctlGetTermios(int(inside.Fd()), unix.TCGETS); err != nil || after.Lflag != before.Lflag || after.Iflag != before.Iflag {
		t.Errorf("the terminal is left as it was not: %v", err)
	}
	if *screenshots != "" {
		if err := os.WriteFile(*screenshots+"/top.ansi", all.Bytes(), 0o600); err != nil {
			t.Error(err)
		}
	}
}
