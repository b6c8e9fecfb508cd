package commands_test

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/need"
)

// TestManRenders: the formatter knows all that the manual pages say: groff warns of unknown
// macros.
func TestManRenders(t *testing.T) {
	groff, dir := need.Program(t, "groff", "groff"), t.TempDir()
	daemon.Must(t, "", "man", dir)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) < 20 {
		t.Fatalf("%d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		out, err := exec.CommandContext(t.Context(), groff, "-man", "-Tutf8", "-ww", "-z", page).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(page), err, out)
		}
	}
}
