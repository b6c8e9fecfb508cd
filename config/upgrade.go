package config

import "time"

// Upgrade is how another process goes on with DRAM where this one ends.
type Upgrade struct {
	// Let a successor (serve --take-over) have DRAM and the sockets, and the next
	// start DRAM, after a stop or a kill, where kvstored keep or systemd kept it. The arena of
	// arena.puts: staged lacks a seal then, so that root, and the daemon's own user,
	// could write it: see [security.md](security.md#handing-over).
	HandOver bool `yaml:"hand_over"`
	// Longest that a step of a hand-over may take. The daemon goes on if the
	// successor is not ready by then.
	Timeout time.Duration `yaml:"timeout" range:"1s..10m" reload:"at once"`
}

// The bounds of upgrade.timeout.
const (
	minUpgradeTimeout = time.Second
	maxUpgradeTimeout = 10 * time.Minute
)

// UpgradeSocketOf is where a daemon whose listen.socket is known hands over.
func UpgradeSocketOf(socket string) string { return socket + ".upgrade" }

// UpgradeSocket is where the daemon hands over.
func (c *Config) UpgradeSocket() string { return UpgradeSocketOf(c.Listen.Socket) }

// KeeperSocket is where kvstored keep listens.
func (c *Config) KeeperSocket() string { return c.Listen.Socket + ".keep" }

func checkUpgrade(c *checker) {
	if t := c.Upgrade.Timeout; t < minUpgradeTimeout || t > maxUpgradeTimeout {
		c.fail("upgrade.timeout", "want a duration from %s to %s, not %s", durationText(minUpgradeTimeout), durationText(maxUpgradeTimeout), durationText(t))
	}
	if path := UpgradeSocketOf(c.Listen.Socket); c.Upgrade.HandOver && len(path) > maxSocketPath {
		c.fail("listen.socket", "%s, where upgrade.hand_over listens, has %d bytes, more than %d; choose a shorter path", path, len(path), maxSocketPath)
	}
}
