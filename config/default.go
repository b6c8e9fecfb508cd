package config

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	mib Bytes = 1 << 20
	gib Bytes = 1 << 30
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Listen: Listen{Socket: "/run/kvstored/kvstored.sock", Mode: 0o660, RESPFull: RESPFullDrop},
		Admin:  Admin{Listen: "127.0.0.1:9464", Mode: 0o600},
		Chunk:  Chunk{Tokens: 256, Hash: HashSHA256},
		CPU:    CPU{Capacity: 4 * gib, Policy: "lru", HugePages: HugePagesAuto},
		Disk:   Disk{Paths: []string{"/var/lib/kvstored"}, Capacity: 50 * gib, Policy: "tenure", MinFree: 5 * gib},
		Remote: Remote{S3: S3{
			Prefix: "kvstored", Region: "us-east-1", Concurrency: 32, Timeout: 10 * time.Second,
		}},
		Write:    Write{Mode: WriteAuto, UnsafeAge: 10 * time.Minute},
		Prefetch: Prefetch{Policy: PrefetchTimeout, Deadline: 2 * time.Second},
		Lease:    Lease{MaxAge: 5 * time.Minute},
		Limits:   Limits{Connections: 4096},
		Stop:     Stop{Flush: 60 * time.Second},
		Log:      Log{Level: "info", Format: "auto"},
	}
}

// DefaultFor is the configuration of a daemon that was given no file: that of
// [Default], but with the paths of an ordinary user where uid is not root's.
// env is in the form of os.Environ.
func DefaultFor(uid int, env []string) Config {
	c := Default()
	if uid == 0 {
		return c
	}
	temp := getenv(env, "TMPDIR", "/tmp")
	own := "kvstored-" + strconv.Itoa(uid) // users share the temporary folder
	c.Listen.Socket = filepath.Join(temp, own+".sock")
	if dir := getenv(env, "XDG_RUNTIME_DIR", ""); dir != "" {
		c.Listen.Socket = filepath.Join(dir, "kvstored.sock")
	}
	cache := filepath.Join(temp, own)
	if home := getenv(env, "HOME", ""); home != "" {
		cache = filepath.Join(home, ".cache", "kvstored")
	}
	if dir := getenv(env, "XDG_CACHE_HOME", ""); dir != "" {
		cache = filepath.Join(dir, "kvstored")
	}
	c.Disk.Paths = []string{cache}
	return c
}

// getenv returns the last value of name in env, and other if it is unset or
// empty (which the XDG specification wants treated alike).
func getenv(env []string, name, other string) string {
	value := other
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok && v != "" {
			value = v
		}
	}
	return value
}

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
	_, err := os.Lstat(own)
	if _, there := os.Lstat(machine); err != nil && there == nil {
		return machine
	}
	return own
}
