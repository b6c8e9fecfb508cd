package nested

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

const ours = "github.com/kvstored/kvstored"

// Program is a program of a nested module.
type Program struct {
	Dir string // the folder of the module below this one's
	Pkg string // the package to build; the program's name is its last element
}

// The programs that tests and benchmarks run.
var (
	Gateway = Program{"internal/test/s3test/versitygw", "github.com/versity/versitygw/cmd/versitygw"}
	FaultFS = Program{"internal/test/faultfs/faultfs", ours + "/internal/test/faultfs/faultfs"}
	Release = Program{"deploy/release", ours + "/deploy/release"}
)

// ErrNotBuilt is the error of Find for a program that was not built yet.
var ErrNotBuilt = errors.New("it is not built: go run ./internal/test/nested/prepare")

// Find returns the path of a program that was built before.
func (p Program) Find(ctx context.Context) (string, error) {
	_, program, err := p.places(ctx)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("nested: %s: %w", filepath.Base(p.Pkg), ErrNotBuilt)
	}
	return program, nil
}

// Build returns the path of a program and builds it if need be. That may download
// its modules and take minutes, so tests call Find instead.
func (p Program) Build(ctx context.Context) (string, error) {
	module, program, err := p.places(ctx)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return "", fmt.Errorf("nested: %w", err)
	}
	return program, build(ctx, module, p.Pkg, program)
}

// places returns the folder of the module and the path of its program. The name
// of the program has a hash of its sources and of what compiles them.
func (p Program) places(ctx context.Context) (module, program string, err error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", ours).Output()
	if err != nil {
		return "", "", fmt.Errorf("nested: where the module lies: %w", err)
	}
	module = filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(p.Dir))
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", "", fmt.Errorf("nested: %w", err)
	}
	for _, path := range append(sources, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", "", fmt.Errorf("nested: %w", err)
		}
		h.Write(text)
	}
	fmt.Fprint(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", fmt.Errorf("nested: %w", err)
	}
	name := filepath.Base(p.Pkg) + "-" + hex.EncodeToString(h.Sum(nil)[:8])
	return module, filepath.Join(cache, "kvstored", "nested", name), nil
}

// build makes program under another name first: another process may build it too.
func build(ctx context.Context, module, pkg, program string) error {
	fresh := fmt.Sprintf("%s.%d", program, os.Getpid())
	defer os.Remove(fresh)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", fresh, pkg)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nested: build %s: %w\n%s", pkg, err, out)
	}
	if err := os.Rename(fresh, program); err != nil {
		return fmt.Errorf("nested: %w", err)
	}
	return nil
}
