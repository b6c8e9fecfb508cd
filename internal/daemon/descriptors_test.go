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
		{16_896, 4096, 0, 4096, 2048, false},
		{16_895, 4096, 0, 4095, 2047, true},
		{1024, 4096, 0, 128, 64, true},
		{1024, 4096, 4000, 128, 128, true},
		{1024, 120, 110, 120, 110, false},
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
