package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/measure"
)

// daemon is the kvstored under attack.
type daemon struct {
	*measure.Daemon
	echo *exec.Cmd
	self string // this program, where every user may run it
	resp string
}

const password = "correct horse battery staple"

func startDaemon(ctx context.Context, binary, dir string) (*daemon, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	d := &daemon{self: filepath.Join(dir, "rude")}
	if out, err := exec.Command("cp", self, d.self).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copy %s: %w: %s", self, err, out)
	}
	if d.resp, err = freeAddress(); err != nil {
		return nil, err
	}
	socket, secret := filepath.Join(dir, "kvstored.sock"), filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return nil, err
	}
	text := fmt.Sprintf(`listen: {socket: %s, mode: "0666", resp: ["%s"], resp_password_file: %s}
admin: {listen: ""}
cpu: {capacity: 512MiB}
disk: {capacity: 0}
log: {level: error}
`, socket, d.resp, secret)
	if d.Daemon, err = measure.Start(binary, socket, text); err != nil {
		return nil, err
	}
	c, err := d.Dial(ctx, client.Options{Inline: true})
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	_ = c.Close() // it asked for nothing
	if err := d.startEcho(); err != nil {
		return nil, errors.Join(fmt.Errorf("the bare server does not start: %w", err), d.Close())
	}
	return d, nil
}

// startEcho starts the bare server.
func (d *daemon) startEcho() (err error) {
	if d.echo, err = d.command(context.Background(), job{Echo: true}, clientUID); err != nil {
		return err
	}
	out, err := d.echo.StdoutPipe()
	if err != nil {
		return err
	}
	d.echo.SysProcAttr = nil // it makes a socket in the daemon's folder
	if err := d.echo.Start(); err != nil {
		return err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	return err
}

func (d *daemon) close() {
	_ = d.echo.Process.Kill()
	_ = d.echo.Wait() // killed
	_ = d.Close()     // what it has to say is on the standard error
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// jobVar, in the environment, makes a process of this program a client or an
// attacker: JSON of a job.
const jobVar = "KVSTORED_RUDE_JOB"

// job is what a process is to do.
type job struct {
	Attack       string // empty: the well-behaved client
	Echo         bool   // the bare server
	Socket, RESP string
	Span         time.Duration
}

// command is this program as a process of a user.
func (d *daemon) command(ctx context.Context, j job, uid uint32) (*exec.Cmd, error) {
	j.Socket, j.RESP = d.Socket, d.resp
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, d.self)
	cmd.Env = append(os.Environ(), jobVar+"="+string(text))
	cmd.Dir = filepath.Dir(d.self)
	cmd.Stderr = os.Stderr
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	return cmd, nil
}

// client runs the well-behaved client and returns its report.
func (d *daemon) client(ctx context.Context, o *options) (s seen, err error) {
	cmd, err := d.command(ctx, job{Span: o.span}, clientUID)
	if err != nil {
		return s, err
	}
	out, err := cmd.Output()
	if err != nil {
		return s, fmt.Errorf("the client: %w", err)
	}
	return s, json.Unmarshal(out, &s)
}

// start starts an attack; end ends it. It is at work when start returns.
func (d *daemon) start(ctx context.Context, a attack, o *options) (end func(), err error) {
	uid := uint32(attackerUID)
	if o.same {
		uid = clientUID
	}
	cmd, err := d.command(ctx, job{Attack: a.name}, uid)
	if err != nil {
		return nil, err
	}
	if o.idle {
		chrt, err := exec.LookPath("chrt")
		if err != nil {
			return nil, fmt.Errorf("-idle: %w; install util-linux", err)
		}
		cmd.Path, cmd.Args = chrt, []string{chrt, "--idle", "0", cmd.Path}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	end = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()                     // killed
		time.Sleep(200 * time.Millisecond) // the daemon gives back what it held
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		end()
		return nil, fmt.Errorf("the attack does not begin: %w", err)
	}
	return end, nil
}
