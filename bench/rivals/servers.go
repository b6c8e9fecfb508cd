package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// The systems under test. The floor has no server: its values lie in the memory of
// the client.
const (
	noServer  = "floor"
	ours      = "kvstored"
	ourRedis  = "kvstored by RESP"
	redis     = "redis"
	memcached = "memcached"
)

// server is one system, running.
type server struct {
	name, socket string
	cmd          *exec.Cmd // nil: the floor
}

func (s *server) pid() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

const ourConfig = `
listen: {socket: %[1]s/kvstored, resp: [%[1]s/resp]}
admin: {listen: ""}
cpu: {capacity: 2GiB}
disk: {capacity: 0}
log: {level: warn}
`

// start runs all systems. stop ends them and is good in any case.
func start(ctx context.Context, dir, binary string) (all []server, stop func(), err error) {
	stop = func() {
		for _, s := range all {
			if s.cmd != nil && s.name != ourRedis {
				_ = s.cmd.Process.Kill()
				_ = s.cmd.Wait()
			}
		}
	}
	file := filepath.Join(dir, "kvstored.yaml")
	socket := func(name string) string { return filepath.Join(dir, "s", name) }
	if err := os.MkdirAll(filepath.Join(dir, "s"), 0o700); err != nil {
		return nil, stop, err
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, ourConfig, filepath.Join(dir, "s")), 0o600); err != nil {
		return nil, stop, err
	}
	all = []server{
		{name: ours, socket: socket("kvstored"), cmd: exec.CommandContext(ctx, binary, "serve", "--config", file)},
		{name: redis, socket: socket("redis"), cmd: exec.CommandContext(ctx, "redis-server", "--port", "0", "--unixsocket", socket("redis"), "--save", "", "--appendonly", "no", "--dir", dir)},
		{name: memcached, socket: socket("memcached"), cmd: exec.CommandContext(ctx, "memcached", "-s", socket("memcached"), "-m", "2048", "-I", "16m", "-u", "root")},
	}
	for i := range all {
		s := &all[i]
		s.cmd.Stderr = os.Stderr
		_ = os.Remove(s.socket) // of the one before
		if err := s.cmd.Start(); err != nil {
			all = all[:i]
			return nil, stop, fmt.Errorf("%w: install redis-server and memcached (apt-get install redis-server memcached)", err)
		}
	}
	for _, s := range all {
		if err := listens(ctx, s.socket); err != nil {
			return nil, stop, fmt.Errorf("%s: %w", s.name, err)
		}
	}
	all = append(all, server{name: ourRedis, socket: socket("resp"), cmd: all[0].cmd}, server{name: noServer})
	return all, stop, nil
}

// startTimeout is how long a server may take until it listens: kvstored clears its
// memory first.
const startTimeout = time.Minute

// listens waits until a server takes connections.
func listens(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
