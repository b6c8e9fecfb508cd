package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
)

// summarize prints what a configuration comes to, as comments; if here, on this
// machine.
func summarize(w io.Writer, c *config.Config, here bool) {
	var l list
	l.row("clients", "%s, mode %04o", c.Listen.Socket, c.Listen.Mode)
	if len(c.Listen.RESP) > 0 {
		l.row("", "Redis: %s", strings.Join(c.Listen.RESP, ", "))
	}
	if c.Listen.LM != "" {
		open := ""
		if c.Listen.LMOpen {
			open = "; no password, whoever reaches it can read and write"
		}
		l.row("", "LMCache: %s%s", c.Listen.LM, open)
	}
	summarizeAccess(&l, c)
	if c.Admin.Listen != "" {
		l.row("metrics", "http://%s/metrics", c.Admin.Listen)
	}
	summarizeDRAM(&l, c)
	summarizeMemory(&l, c, here)
	summarizeDisk(&l, &c.Disk, here)
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

// summarizeAccess says who can read all of DRAM.
func summarizeAccess(l *list, c *config.Config) {
	if len(c.Access) == 0 {
		l.row("access", "every client may map the arena, and so read all of DRAM")
		return
	}
	var uids []uint32
	for _, r := range c.Access {
		if r.Map {
			uids = append(uids, r.UIDs...)
		}
	}
	slices.Sort(uids)
	who := "only root and the daemon's own user"
	switch uids = slices.Compact(uids); len(uids) {
	case 0:
	case 1:
		who = fmt.Sprintf("user %d", uids[0])
	default:
		who = "users " + strings.Trim(fmt.Sprint(uids), "[]")
	}
	l.row("access", "rules; %s may map the arena, and so read all of DRAM", who)
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
func summarizeDisk(l *list, c *config.Disk, here bool) {
	if !c.Enabled() {
		l.row("disk", "none")
		return
	}
	l.row("disk", "up to %s, %s left free for others; database in %s", size(int64(c.Capacity)), size(int64(c.MinFree)), c.MetaPath())
	for _, path := range c.Paths {
		if !here {
			l.row("", "%s", path)
			continue
		}
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
