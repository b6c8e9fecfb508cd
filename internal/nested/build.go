// Package nested builds programs that tests run, from modules in folders of
// this one, so that nothing of them enters it. What was built is kept in the
// user's cache folder.
package nested

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

const ours = "github.com/kvstored/kvstored"

// Build returns the path of a program of a nested module, building it if need
// be. dir is the folder of that module below this one's, pkg what to build; the
// program's name is the last of pkg.
func Build(ctx context.Context, dir, pkg string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", ours).Output()
	if err != nil {
		return "", fmt.Errorf("nested: where the module lies: %w", err)
	}
	module := filepath.Join(strings.TrimSpace(string(root)), filepath.FromSlash(dir))
	h := sha256.New()
	sources, err := filepath.Glob(filepath.Join(module, "*.go"))
	if err != nil {
		return "", fmt.Errorf("nested: %w", err)
	}
	for _, path := range append(sources, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum")) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("nested: %w", err)
		}
		h.Write(text)
	}
	fmt.Fprint(h, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("nested: %w", err)
	}
	programs := filepath.Join(cache, "kvstored", "nested")
	program := filepath.Join(programs, filepath.Base(pkg)+"-"+hex.EncodeToString(h.Sum(nil)[:8]))
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(programs, 0o755); err != nil {
		return "", fmt.Errorf("nested: %w", err)
	}
	return program, build(ctx, module, pkg, program)
}

// build makes program under another name first: others may be building too.
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
