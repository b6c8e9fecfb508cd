package reach

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strings"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/router/zmtp"
)

// Errors of Check.
var (
	ErrEndpoint   = errors.New("wrong endpoint")
	ErrNotAllowed = errors.New("endpoint is not allowed")
)

// Allow is where workers may be: addresses, networks such as 10.0.0.0/8, patterns
// of host names such as *.workers.internal, and patterns of paths of Unix sockets.
type Allow struct {
	networks []netip.Prefix
	names    []string
	paths    []string
}

// Parse reads the entries of a list. The error names the entry that is none.
func Parse(entries []string) (Allow, error) {
	var a Allow
	for _, e := range entries {
		prefix, err := netip.ParsePrefix(e)
		if addr, failed := netip.ParseAddr(e); failed == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err == nil:
			a.networks = append(a.networks, prefix.Masked())
		case strings.HasPrefix(e, "/"):
			a.paths = append(a.paths, e)
		case e == "" || strings.ContainsAny(e, "/:@[] \x00") || strings.Trim(e, "*?.") == "":
			return Allow{}, fmt.Errorf("%q allows nothing; write an address, a network such as 10.0.0.0/8, a host name such as *.workers.internal without a port, or the path of a socket such as /run/kvstored/*", e)
		default:
			a.names = append(a.names, strings.ToLower(e))
		}
	}
	return a, nil
}

// Check is an error unless a worker may be at an endpoint: tcp://host:port,
// ipc:///path, or the path of a daemon's socket.
func (a *Allow) Check(endpoint string) error {
	if strings.HasPrefix(endpoint, "/") {
		return a.path(endpoint)
	}
	network, addr, err := zmtp.Addr(endpoint)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrEndpoint, err)
	}
	if network == "unix" {
		return a.path(addr)
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" || port == "0" {
		return fmt.Errorf("%w %q; write tcp://host:port", ErrEndpoint, endpoint)
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		for _, n := range a.networks {
			if n.Contains(ip.Unmap().WithZone("")) {
				return nil
			}
		}
		return fmt.Errorf("%w: %s; route.allow has no network with %s", ErrNotAllowed, endpoint, ip)
	}
	for _, name := range a.names {
		if base.Glob(name, strings.ToLower(strings.TrimSuffix(host, "."))) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s; route.allow has no name that matches %.80q", ErrNotAllowed, endpoint, host)
}

func (a *Allow) path(p string) error {
	if path.Clean(p) != p || strings.ContainsRune(p, 0) {
		return fmt.Errorf("%w %q; write an absolute path without . and ..", ErrEndpoint, p)
	}
	for _, pattern := range a.paths {
		if base.Glob(pattern, p) {
			return nil
		}
	}
	return fmt.Errorf("%w: %s; route.allow has no path that matches it", ErrNotAllowed, p)
}
