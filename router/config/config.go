package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kvstored/kvstored/config"
)

// Config is all that the router can be told. The zero Config is not valid; start from
// [Default].
type Config struct {
	Route Route      `yaml:"route"`
	Log   config.Log `yaml:"log"`
}

const (
	mib = 1 << 20
	gib = 1 << 30

	// maxSocketPath is sockaddr_un's sun_path less its final zero, and less the byte more
	// of the name that a socket has until it is moved into place.
	maxSocketPath = 106
)

// Default is the configuration of an empty file.
func Default() Config {
	return Config{
		Route: Route{
			Listen: "127.0.0.1:9465", Mode: 0o600, Allow: []string{"127.0.0.0/8", "::1", "localhost", "/run/kvstored/*"},
			Memory: gib, MaxWorkers: 4096, WorkerBlocks: 4 << 20,
			Reservation: 10 * time.Minute, Grace: 30 * time.Second, Silence: 10 * time.Second,
		},
		Log: config.Log{Level: "info", Format: "auto"},
	}
}

// Load reads the file at path, applies the environment (in the form of os.Environ) and
// checks the result. Wrong content is reported as [config.Errors].
func Load(path string, env []string) (Config, error) {
	c := Default()
	err := config.LoadInto(&c, path, env, func(meant func(string) bool) config.Errors {
		k := checker{Config: &c, meant: meant}
		k.route()
		k.oneOf("log.level", c.Log.Level, "trace", "debug", "info", "warn", "error")
		k.oneOf("log.format", c.Log.Format, "auto", "console", "json")
		return k.errs
	})
	return c, err
}

// checker collects the problems of one configuration.
type checker struct {
	*Config
	meant func(path string) bool // false: the value there is not worth a word
	errs  config.Errors
}

func (c *checker) fail(path, format string, args ...any) {
	if c.meant(path) {
		c.errs = append(c.errs, &config.Error{Path: path, Text: fmt.Sprintf(format, args...)})
	}
}

func (c *checker) oneOf(path, value string, known ...string) {
	if !slices.Contains(known, value) {
		last := len(known) - 1
		c.fail(path, "want %s or %s, not %q", strings.Join(known[:last], ", "), known[last], value)
	}
}

func (c *checker) between(path string, value, least, most int) {
	if value < least || value > most {
		c.fail(path, "want a number from %d to %d, not %d", least, most, value)
	}
}

// absolute wants an absolute path, or none.
func (c *checker) absolute(path, value string) {
	if value != "" && (!filepath.IsAbs(value) || strings.ContainsRune(value, 0)) {
		c.fail(path, "want an absolute path, not %q", value)
	}
}

func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	_, numeric := strconv.ParseUint(port, 10, 16)
	return err == nil && numeric == nil && host != ""
}

// OnlyHere reports whether only this machine reaches an address.
func OnlyHere(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	ip, err := netip.ParseAddr(host)
	return addr == "" || strings.HasPrefix(addr, "/") || host == "localhost" || err == nil && ip.IsLoopback()
}
