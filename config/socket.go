package config

import "os"

// DefaultSocket is where a command goes that was not told where the daemon listens.
func DefaultSocket() string {
	if s := os.Getenv("KVSTORED_SOCKET"); s != "" {
		return s
	}
	own := DefaultFor(os.Geteuid(), os.Environ()).Listen.Socket
	return socketThere(own, Default().Listen.Socket)
}

// socketThere is own, the socket of this user's daemon, unless only that of the
// machine's daemon is there, as in a container and beside a systemd unit.
func socketThere(own, machine string) string {
	if _, err := os.Lstat(own); err == nil {
		return own
	}
	if _, err := os.Lstat(machine); err == nil {
		return machine
	}
	return own
}
