package s3test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/nested"
)

// The server's module, below the one of this package, and its program.
const (
	folder = "internal/s3test/versitygw"
	theirs = "github.com/versity/versitygw/cmd/versitygw"
)

// What a Server is asked with.
const (
	Bucket    = "chunks"
	Region    = "us-east-1"
	AccessKey = "kvstored-test-access"
	SecretKey = "kvstored-test-secret-that-must-not-show"
)

const (
	startTries = 5 // somebody else may take the port that was free
	startWait  = 10 * time.Second
)

// Server is a running S3 server with one empty bucket.
type Server struct {
	Endpoint string // its URL
	Dir      string // folder of the bucket: each object is a file
	cmd      *exec.Cmd
}

// Start runs a server over dir. Stop it.
func Start(ctx context.Context, dir string) (*Server, error) {
	program, err := nested.Build(ctx, folder, theirs)
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: filepath.Join(dir, Bucket)}
	if err := os.MkdirAll(s.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("s3test: %w", err)
	}
	for range startTries {
		if err = s.start(program, dir); err == nil {
			return s, nil
		}
	}
	return nil, fmt.Errorf("s3test: start versitygw: %w", err)
}

func (s *Server) start(program, dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	addr := l.Addr().String()
	l.Close()
	s.cmd = exec.Command(program, "--quiet", "--keep-alive", "--region", Region,
		"--access", AccessKey, "--secret", SecretKey, "--port", addr, "posix", dir)
	if err := s.cmd.Start(); err != nil {
		return err
	}
	s.Endpoint = "http://" + addr
	for until := time.Now().Add(startWait); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			return c.Close()
		}
	}
	s.Stop()
	return fmt.Errorf("it does not listen on %s", addr)
}

// Stop ends the server.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Run starts a server for one test and puts its credentials into the
// environment. The test must not be parallel.
func Run(t testing.TB) *Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if _, err := nested.Build(ctx, folder, theirs); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skipf("no S3 server to test against, and it cannot be built here: %v", err)
	}
	Credentials(t)
	s, err := Start(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

// Credentials puts those of a Server into the environment of one test, and
// nothing of this machine's.
func Credentials(t testing.TB) {
	t.Helper()
	nowhere := filepath.Join(t.TempDir(), "nothing")
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey, "AWS_SESSION_TOKEN": "",
		"AWS_PROFILE": "", "AWS_CONFIG_FILE": nowhere, "AWS_SHARED_CREDENTIALS_FILE": nowhere,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CA_BUNDLE": "",
		"AWS_WEB_IDENTITY_TOKEN_FILE": "", "AWS_ROLE_ARN": "", "AWS_ENDPOINT_URL_STS": "",
	} {
		t.Setenv(name, value)
	}
}
