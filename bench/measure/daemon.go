package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
)

// startTimeout is how long a daemon may take for its arena: with huge pages and
// fragmented memory it is 3 CPU seconds per GiB, beside what else runs on the machine.
const startTimeout = 3 * time.Minute

// Program is the file of a daemon's program: binary, or where that is empty this tree's
// kvstored, built into dir.
func Program(ctx context.Context, binary, dir string) (string, error) {
	if binary != "" {
		return binary, nil
	}
	binary, err := filepath.Abs(filepath.Join(dir, "kvstored"))
	if err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kvstored/kvstored").Output()
	if err != nil {
		return "", fmt.Errorf("find kvstored's source: %w", err)
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", binary, "./cmd/kvstored").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build kvstored: %w\n%s", err, out)
	}
	return binary, nil
}

// Daemon is one process of kvstored. Its methods may be called from any goroutine.
type Daemon struct {
	Socket string // that it listens at
	file   string // its configuration
	cmd    *exec.Cmd
	ended  chan struct{} // closed when the process has ended
	err    error         // how, once ended is closed
}

// Start starts a daemon whose configuration is text and has it listen at socket, beside
// which the file with the text lies. It does not wait until the daemon serves; Dial does.
func Start(program, socket, text string) (*Daemon, error) {
	d := &Daemon{Socket: socket, file: socket + ".yaml"}
	if err := os.WriteFile(d.file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return d, d.launch(program)
}

func (d *Daemon) launch(program string, args ...string) error {
	d.cmd = exec.Command(program, append([]string{"serve", "--config", d.file}, args...)...)
	d.cmd.Stderr = os.Stderr
	if err := d.cmd.Start(); err != nil {
		return err
	}
	d.ended = make(chan struct{})
	go func() {
		d.err = d.cmd.Wait()
		close(d.ended)
	}()
	return nil
}

// Dial connects a client as soon as the daemon serves with all of its DRAM: until then what
// is put soon gives way. The error of a daemon that has ended says so; the daemon's own words
// are on the standard error of this process.
func (d *Daemon) Dial(ctx context.Context, o client.Options) (*client.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var c *client.Client
	for {
		var err error
		if c == nil {
			c, err = client.Dial(ctx, d.Socket, o)
		}
		if err == nil {
			var whole bool
			if whole, err = populated(ctx, c); whole {
				return c, nil
			}
		}
		select {
		case <-ctx.Done():
			err = fmt.Errorf("the daemon does not serve: %w", errors.Join(ctx.Err(), err))
		case <-d.ended:
			err = d.failure()
		case <-time.After(10 * time.Millisecond):
			continue
		}
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
}

// populated reports whether the memory of DRAM is all there.
func populated(ctx context.Context, c *client.Client) (bool, error) {
	raw, err := c.Stats(ctx)
	if err != nil {
		return false, err
	}
	var st struct {
		Arena struct {
			Capacity  int64 `json:"capacity_bytes"`
			Populated int64 `json:"populated_bytes"`
		} `json:"arena"`
	}
	err = json.Unmarshal(raw, &st)
	return st.Arena.Populated == st.Arena.Capacity, err
}

// failure is why a daemon is gone that was not asked to end.
func (d *Daemon) failure() error {
	return fmt.Errorf("the daemon has ended, see above: %w", errors.Join(d.err, errors.New("it was not asked to")))
}

// PID is the number of the process.
func (d *Daemon) PID() int { return d.cmd.Process.Pid }

// Busy is the processor time that the process has taken; 0 once it has ended, and where
// the system does not tell.
func (d *Daemon) Busy() time.Duration { return Used(d.PID()) }

// Close asks the process to end and waits until it has; its error is the process'. It may
// be called again, and for a daemon that has ended.
func (d *Daemon) Close() error {
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // or it has ended
	<-d.ended
	return d.err
}
