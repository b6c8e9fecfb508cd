package measure

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Installed says what bench/install/install.py has made of the names that it was asked for.
type Installed struct {
	Python  map[string]string `json:"python"`  // an interpreter, by name
	Missing map[string]string `json:"missing"` // why there is none
}

// LMCacheEnv keeps LMCache from telling its authors of a run, and has its hashes the same in
// each process.
var LMCacheEnv = []string{"LMCACHE_DISABLE_BANNER=1", "LMCACHE_TRACK_USAGE=false", "LMCACHE_LOG_LEVEL=WARNING", "PYTHONHASHSEED=0"}

// Install installs Python packages, and servers, by the names of install.py.
func Install(ctx context.Context, names ...string) (*Installed, error) {
	dir, err := Source(ctx, "install")
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "python3", append([]string{filepath.Join(dir, "install.py")}, names...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("install what is missing: %w", err)
	}
	i := &Installed{}
	return i, json.Unmarshal(out, i)
}

// Source is a folder of this module.
func Source(ctx context.Context, folder string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kvstored/kvstored/bench").Output()
	if err != nil {
		return "", fmt.Errorf("find the source of the benches: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(root)), folder), nil
}
