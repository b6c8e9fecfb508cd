package trouble

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
)

// A daemon whose log nothing reads, and one whose reader has left, serve and stop as
// ever.
func TestLogThatNothingReads(t *testing.T) {
	for name, leaves := range map[string]bool{"a full pipe": false, "a reader that leaves": true} {
		t.Run(name, func(t *testing.T) {
			d := daemon.Folder(t, func(c *config.Config) { c.Log.Level, c.Disk.Capacity = "debug", 0 })
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(daemon.Program(t), "serve", d.Config)
			cmd.Env, cmd.Stderr = daemon.Environ(), w
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_ = w.Close()
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			defer cmd.Process.Kill() //nolint:errcheck // it has ended
			connect := func() bool {
				c, err := net.Dial("unix", d.Socket)
				if err == nil {
					_ = c.Close()
				}
				return err == nil
			}
			for deadline := time.Now().Add(time.Minute); !connect(); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("it does not serve")
				}
			}
			if leaves {
				_ = r.Close()
			}
			for range 1000 { // two lines each
				if !connect() {
					t.Fatal("it serves no more")
				}
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Errorf("it ended with %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("it does not stop")
			}
		})
	}
}
