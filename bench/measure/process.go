package measure

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	// StartTimeout is how long a server or a client may take until it answers: imports, and
	// memory that is cleared first.
	StartTimeout = 2 * time.Minute
	endTimeout   = 5 * time.Second // until a process that was asked to end is killed
)

// Processes belong together. One goroutine calls the methods.
type Processes struct{ all []*Process }

// Process is one of its own group, so that what it starts ends with it.
type Process struct {
	cmd   *exec.Cmd
	log   string // a file
	ended chan struct{}
}

// Launch starts a process, what it says goes to a file. Its standard output may be taken.
func (ps *Processes) Launch(cmd *exec.Cmd, env []string, log string) (*Process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = f
	if cmd.Stdout == nil {
		cmd.Stdout = f
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, log: log, ended: make(chan struct{})}
	ps.all = append(ps.all, p)
	go func() {
		_ = cmd.Wait() // Process.Wait tells
		close(p.ended)
	}()
	return p, nil
}

// Server is how a server is started, and the path or host:port where it answers.
type Server struct {
	Command, Env []string
	At           string
}

// Serve starts a server and waits until it takes connections.
func (ps *Processes) Serve(ctx context.Context, s Server, log string) error {
	p, err := ps.Launch(exec.Command(s.Command[0], s.Command[1:]...), s.Env, log)
	if err != nil {
		return err
	}
	network := "tcp"
	if strings.HasPrefix(s.At, "/") {
		network = "unix"
	}
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	for {
		conn, err := net.Dial(network, s.At)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return p.Failed("has ended")
		case <-ctx.Done():
			return p.Failed("does not answer: " + err.Error())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Failed is an error with the last words of a process.
func (p *Process) Failed(how string) error {
	words, _ := os.ReadFile(p.log) // or there are none
	lines := bytes.Split(bytes.TrimSpace(words), []byte("\n"))
	return fmt.Errorf("%s %s: %s", p.cmd.Path, how, lines[len(lines)-1])
}

// Wait waits until a process has ended by itself; ctx ends it.
func (p *Process) Wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, p.End)()
	<-p.ended
	if !p.cmd.ProcessState.Success() {
		return p.Failed("failed with " + p.cmd.ProcessState.String())
	}
	return nil
}

// Over reports whether a process has ended.
func (p *Process) Over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// End asks a process and its own to end.
func (p *Process) End() { _ = p.signal(syscall.SIGTERM) } // or they have

func (p *Process) signal(s syscall.Signal) error { return syscall.Kill(-p.cmd.Process.Pid, s) }

// Stop ends all processes, the last one first.
func (ps *Processes) Stop() {
	for i := len(ps.all) - 1; i >= 0; i-- {
		p := ps.all[i]
		p.End()
		_ = p.signal(syscall.SIGCONT) // one that is paused does not end
		select {
		case <-p.ended:
		case <-time.After(endTimeout):
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what the process has left behind
		<-p.ended
	}
	ps.all = nil
}

// Port is a free one of this machine.
func Port() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
