package daemon

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/config"
)

const (
	// ownFiles are the descriptors that the daemon has besides those of clients:
	// listeners, segments of the disk tier, connections to a bucket, HTTP clients.
	ownFiles = 512
	// connectionFiles are those of a connection: its socket, what it sleeps on for
	// that, and its staging window; and one that waits to be refused beside it.
	connectionFiles = 4
	// leastConnections are let in whatever the limit on open files is.
	leastConnections = 64
)

// openFiles is the limit on open files of this process, which the Go runtime has
// raised as far as it may; 0 = not known.
func openFiles() uint64 {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return uint64(r.Cur) //nolint:unconvert // signed on some systems
}

// limitsWithin are the limits, with as many connections as so many open files have
// room for: where none is left, the connections of one user would keep out
// administrators and take the files of the disk tier. files 0 bounds nothing.
func limitsWithin(l config.Limits, files uint64) config.Limits {
	if room := (max(files, ownFiles) - ownFiles) / connectionFiles; files > 0 && room < uint64(l.Connections) {
		l.Connections = max(int(room), leastConnections)
		l.UIDConnections = min(l.UIDConnections, l.Connections)
	}
	return l
}

// fileWarnings says which connections there is no room for.
func fileWarnings(c *config.Config, files uint64) []string {
	n := limitsWithin(c.Limits, files).Connections
	if n == c.Limits.Connections {
		return nil
	}
	return []string{fmt.Sprintf("limits.connections: %d connections may take %d open files, and %d are allowed here: the daemon takes %d connections; raise that limit (ulimit -n, or LimitNOFILE= of a systemd unit), or lower the key",
		c.Limits.Connections, ownFiles+connectionFiles*c.Limits.Connections, files, n)}
}
