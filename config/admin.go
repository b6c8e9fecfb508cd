package config

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Admin is where the daemon is watched, over TCP, and administered, over a Unix socket of
// its own.
type Admin struct {
	// The host:port of /metrics, /healthz, /readyz and /dashboard/; "" turns them off. It asks
	// for no password and changes nothing.
	Listen string `yaml:"listen"`
	// Host names under which it is asked, besides its addresses, localhost and the name in
	// listen. Others are refused, as are foreign web pages.
	Hosts []string `yaml:"hosts,flow"`
	// The page at /dashboard/ also shows names of clients and prompts, to all who reach the
	// listener.
	Dashboard bool `yaml:"dashboard"`
	// Absolute path of the Unix socket for administrators, at most 106 bytes; "" is
	// listen.socket with `.admin` behind it.
	Socket string `yaml:"socket"`
	// Its permissions, in octal. Others of listen.admin_uids or access than root and the
	// daemon's user take 0660 and a group.
	Mode os.FileMode `yaml:"mode"`
	// Its group, by name or number; "" is the daemon's own.
	Group string `yaml:"group"`
}

// AdminSocketOf is where a daemon whose listen.socket is known is administered,
// unless admin.socket says otherwise.
func AdminSocketOf(socket string) string { return socket + ".admin" }

// AdminSocket is where the daemon is administered.
func (c *Config) AdminSocket() string {
	return cmp.Or(c.Admin.Socket, AdminSocketOf(c.Listen.Socket))
}

// OwnHosts are the host names, in lower case, under which admin.listen is asked.
func (a *Admin) OwnHosts() []string {
	var own []string
	for _, name := range a.Hosts {
		own = append(own, strings.ToLower(name))
	}
	if host, _, err := net.SplitHostPort(a.Listen); err == nil {
		own = append(own, strings.ToLower(host))
	}
	return own
}

func (c *checker) admin() {
	if c.Admin.Listen != "" {
		c.adminListen()
	}
	c.adminHosts()
	const path = "admin.socket"
	derived := c.AdminSocket()
	switch {
	case c.Admin.Socket != "":
		c.socket(path, c.Admin.Socket)
	case len(derived) > maxSocketPath && len(c.Listen.Socket) <= maxSocketPath && c.meant("listen.socket"):
		c.fail(path, "listen.socket with .admin behind it has %d bytes, which are too long for a socket; write a path of at most %d here", len(derived), maxSocketPath)
	}
	c.mode("admin.mode", c.Admin.Mode)
	c.group("admin.group", c.Admin.Group)
}

func (c *checker) adminListen() {
	const path = "admin.listen"
	host, port, err := net.SplitHostPort(c.Admin.Listen)
	if err != nil {
		c.fail(path, `%q is not an address; write host:port such as 127.0.0.1:9464, or "" to turn it off`, c.Admin.Listen)
		return
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil {
		c.fail(path, "port %q is not a number from 0 to 65535", port)
	} else if host == "" {
		c.fail(path, "names no host; write 127.0.0.1:%d for this machine only, or 0.0.0.0:%d for everybody who can reach it", n, n)
	}
	if _, err := netip.ParseAddr(host); err != nil && strings.ContainsAny(host, "/@ \x00") {
		c.fail(path, "%q is not a host name or an address", host)
	}
}

// adminHosts wants bare names: what else is compared with a Host header never
// matches.
func (c *checker) adminHosts() {
	for i, name := range c.Admin.Hosts {
		path := fmt.Sprintf("admin.hosts[%d]", i)
		_, err := netip.ParseAddr(name)
		switch {
		case err == nil:
			c.fail(path, "%s is an address; these are accepted without being named, so remove it", name)
		case name == "" || strings.ContainsAny(name, ":/@*?[] \x00") || strings.HasSuffix(name, "."):
			c.fail(path, "%q is not a host name; write it without scheme, port or pattern, such as node1.example", name)
		case slices.ContainsFunc(c.Admin.Hosts[:i], func(other string) bool { return strings.EqualFold(name, other) }):
			c.fail(path, "%s is in the list already; give each name once", name)
		}
	}
}
