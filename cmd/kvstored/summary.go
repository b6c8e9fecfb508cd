package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/server"
)

// summarize prints what a configuration comes to on this machine, as comments.
func summarize(w io.Writer, c *config.Config) {
	var l list
	l.row("clients", "%s, mode %04o", c.Listen.Socket, c.Listen.Mode)
	if len(c.Listen.RESP) > 0 {
		l.row("", "Redis: %s", strings.Join(c.Listen.RESP, ", "))
	}
	if c.Listen.LM != "" {
		l.row("", "LMCache: %s", c.Listen.LM)
	}
	if c.Admin.Listen != "" {
		l.row("metrics", "http://%s/metrics", c.Admin.Listen)
	}
	summarizeDRAM(&l, c)
	summarizeDisk(&l, &c.Disk)
	if s := &c.Remote.S3; s.Enabled() {
		at := s.Endpoint
		if at == "" {
			at = "Amazon S3, " + s.Region
		}
		l.row("remote", "bucket %s at %s; --connect tries it", s.Bucket, at)
	} else {
		l.row("remote", "none")
	}
	l.print(w, "# ")
}

// summarizeDRAM says what the shares of DRAM are in bytes.
func summarizeDRAM(l *list, c *config.Config) {
	share := func(s float64) string { return size(s * float64(c.CPU.Capacity)) }
	b := &c.Budget
	l.row("DRAM", "%s of shared memory, taken at start", size(int64(c.CPU.Capacity)))
	l.row("", "leases and fills %s, half of that for one client of several; pins %s, loads %s, unwritten %s; %s in all",
		share(b.Leases), share(b.Pins), share(b.Loads), size(min(int64(c.Write.Queue), int64(b.Unwritten*float64(c.CPU.Capacity)))), share(config.MaxProtected))
}

// summarizeDisk says what there is room for.
func summarizeDisk(l *list, c *config.Disk) {
	if !c.Enabled() {
		l.row("disk", "none")
		return
	}
	l.row("disk", "up to %s, %s left free for others; database in %s", size(int64(c.Capacity)), size(int64(c.MinFree)), c.MetaPath())
	for _, path := range c.Paths {
		free := "free space unknown"
		if n, err := disk.FreeBytes([]string{path}); err == nil {
			free = size(n) + " free"
		}
		if _, err := os.Stat(path); os.IsNotExist(err) {
			free += "; made at start"
		}
		l.row("", "%s: %s", path, free)
	}
}

// missing says what the daemon would not find on this machine, or not use.
func missing(c *config.Config) (out []string) {
	if g := c.Listen.Group; g != "" {
		if _, err := server.GroupID(g); err != nil {
			out = append(out, fmt.Sprintf("%v: serve would fail here", err))
		}
	}
	sockets := append([]string{c.Listen.Socket, c.Listen.LM}, c.Listen.RESP...)
	for i, path := range sockets {
		if dir := filepath.Dir(path); strings.HasPrefix(path, "/") {
			if st, err := os.Stat(dir); os.IsNotExist(err) || err == nil && !st.IsDir() {
				key := []string{"listen.socket", "listen.lm", "listen.resp"}[min(i, 2)]
				out = append(out, fmt.Sprintf("%s: there is no folder %s; make it before serve", key, dir))
			}
		}
	}
	if path := c.Listen.RESPPasswordFile; path != "" {
		if _, err := os.Stat(path); os.IsNotExist(err) {
			out = append(out, fmt.Sprintf("listen.resp_password_file: there is no %s; serve would fail here", path))
		}
	}
	if s := &c.Remote.S3; s.Endpoint != "" && !s.Enabled() {
		out = append(out, "remote.s3.endpoint is set, but there is no remote tier without remote.s3.bucket")
	}
	return out
}
