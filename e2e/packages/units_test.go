package packages_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/e2e/daemon"
)

// Where systemd is, it finds nothing wrong with the units.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("no systemd-analyze")
	}
	program := daemon.Program(t)
	for _, name := range []string{"deploy/kvstored.service", "router/deploy/kvstored-router.service"} {
		text, err := os.ReadFile(filepath.Join(daemon.Root(), name))
		if err != nil {
			t.Fatal(err)
		}
		unit := filepath.Join(t.TempDir(), filepath.Base(name))
		here := regexp.MustCompile(`(?m)^(Exec\w+=)/\S+`).ReplaceAll(text, []byte("${1}"+program))
		if err := os.WriteFile(unit, here, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", unit).CombinedOutput(); err != nil || strings.Contains(string(out), filepath.Base(name)) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
