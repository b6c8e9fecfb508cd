package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// machines are the names that Python has for processors.
var machines = map[string]string{"amd64": "x86_64", "arm64": "aarch64"}

// wheel writes the Python package for a system, with the daemon in it. Its extension is
// compiled by the C compiler that is here, and is left out where there is none for it.
func (r *release) wheel(ctx context.Context, s system) error {
	cmd := r.command(ctx, "python3", "-B", "-m", "hatchling", "build", "-t", "wheel", "-d", r.out)
	cmd.Dir = filepath.Join(r.source, "clients", "python")
	cmd.Env = append(os.Environ(), "KVSTORED_WHEEL="+machines[s.arch], fmt.Sprint("SOURCE_DATE_EPOCH=", r.date.Unix()))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("wheel: python3 -m hatchling: %w (pip install 'hatchling>=1.27' brings it)", err)
	}
	return nil
}
