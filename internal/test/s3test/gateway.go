package s3test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/internal/test/nested"
)

const (
	startTries = 5 // another process may take the port that was free
	startWait  = 10 * time.Second
)

// Start builds versitygw if need be and runs it over dir, for a benchmark. The
// first build takes about two minutes. Stop it.
func Start(ctx context.Context, dir string) (*Server, error) {
	program, err := nested.Gateway.Build(ctx)
	if err != nil {
		return nil, err
	}
	return startGateway(program, dir)
}

// startGateway runs a versitygw program over dir, where each object is a file.
func startGateway(program, dir string) (*Server, error) {
	bucket := filepath.Join(dir, Bucket)
	if err := os.MkdirAll(bucket, 0o755); err != nil {
		return nil, fmt.Errorf("s3test: %w", err)
	}
	var err error
	for range startTries {
		var s *Server
		if s, err = tryGateway(program, dir); err == nil {
			s.Objects = func() (map[string]int64, error) { return files(bucket) }
			return s, nil
		}
	}
	return nil, fmt.Errorf("s3test: start %s: %w", program, err)
}

func tryGateway(program, dir string) (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().String()
	l.Close()
	cmd := exec.Command(program, "--quiet", "--keep-alive", "--region", Region,
		"--access", AccessKey, "--secret", SecretKey, "--port", addr, "posix", dir)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{Endpoint: "http://" + addr, Stop: func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}}
	for until := time.Now().Add(startWait); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return s, c.Close()
		}
	}
	s.Stop()
	return nil, fmt.Errorf("it does not listen on %s", addr)
}

// files are the sizes of the files below a folder, by name; none where there is
// no folder.
func files(dir string) (map[string]int64, error) {
	sizes := make(map[string]int64)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil || !e.Type().IsRegular():
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		sizes[filepath.ToSlash(name)] = info.Size()
		return err
	})
	return sizes, err
}
