package s3test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	ours   = "github.com/kvstored/kvstored"
	theirs = "github.com/versity/versitygw/cmd/versitygw"
)

// Build returns the path of the server's program, building it if need be.
func Build(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", ours).Output()
	if err != nil {
		return "", fmt.Errorf("s3test: where the module lies: %w", err)
	}
	module := filepath.Join(strings.TrimSpace(string(root)), "internal", "s3test", "versitygw")
	h := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", fmt.Errorf("s3test: %w", err)
		}
		h.Write(text)
	}
	fmt.Fprint(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("s3test: %w", err)
	}
	dir := filepath.Join(cache, "kvstored", "s3test")
	program := filepath.Join(dir, "versitygw-"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("s3test: %w", err)
	}
	return program, build(ctx, module, program)
}

// build makes program under another name first: others may be building too.
func build(ctx context.Context, module, program string) error {
	fresh := fmt.Sprintf("%s.%d", program, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", fresh, theirs)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("s3test: build versitygw: %w\n%s", err, out)
	}
	if err := os.Rename(fresh, program); err != nil {
		return fmt.Errorf("s3test: %w", err)
	}
	return nil
}
