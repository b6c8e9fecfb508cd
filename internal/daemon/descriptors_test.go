package daemon

import (
	"strings"
	"testing"

	"github.com/kvstored/kvstored/config"
)

// TestConnectionsWithinOpenFiles: clients never take all open files.
func TestConnectionsWithinOpenFiles(t *testing.T) {
	for _, c := range []struct {
		files               uint64
		connections, ofUser int // configured
		most, mostOfOneUser int
		warned              bool
	}{
		{0, 4096, 0, 4096, 2048, false}, // not known
		{1 << 20, 4096, 0, 4096, 2048, false},
		{12_800, 4096, 0, 4096, 2048, false},
		{12_799, 4096, 0, 4095, 2047, true},
		{1024, 4096, 0, 170, 85, true},
		{1024, 4096, 4000, 170, 170, true},
		{1024, 160, 150, 160, 150, false},
		{256, 4096, 0, leastConnections, leastConnections / 2, true},
	} {
		cfg := config.Default()
		cfg.Limits.Connections, cfg.Limits.UIDConnections = c.connections, c.ofUser
		l := limitsWithin(cfg.Limits, c.files)
		if l.Connections != c.most || l.OfOneUser() != c.mostOfOneUser {
			t.Errorf("%d files, %d connections, %d of one user: %d and %d", c.files, c.connections, c.ofUser, l.Connections, l.OfOneUser())
		}
		w := strings.Join(fileWarnings(&cfg, c.files), "")
		if strings.Contains(w, "ulimit -n") != c.warned {
			t.Errorf("%d files, %d connections: warned of %q", c.files, c.connections, w)
		}
	}
}
