package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/sample"
)

// summarize prints what a configuration comes to, as comments; if here, on this
// machine. keeper is what one holds, or empty.
func summarize(w io.Writer, c *config.Config, here bool, keeper string) {
	var l cli.List
	l.Row("clients", "%s, mode %04o", c.Listen.Socket, c.Listen.Mode)
	if len(c.Listen.RESP) > 0 {
		l.Row("", "Redis: %s", strings.Join(c.Listen.RESP, ", "))
	}
	summarizeAccess(&l, c)
	if c.Admin.Listen != "" {
		l.Row("metrics", "http://%s/metrics", c.Admin.Listen)
	}
	summarizeDRAM(&l, c)
	if c.CPU.Keep && keeper != "" {
		l.Row("keep", "%s", keeper)
	}
	summarizeMemory(&l, c, here)
	summarizeChunks(&l, c, here)
	summarizeDisk(&l, &c.Disk, here)
	if s := &c.Remote.S3; s.Enabled() {
		at := s.Endpoint
		if at == "" {
			at = "Amazon S3, " + s.Region
		}
		l.Row("remote", "bucket %s at %s; --connect tries it", s.Bucket, at)
	} else {
		l.Row("remote", "none")
	}
	l.Print(w, "# ")
}

// summarizeAccess says who can read all of DRAM.
func summarizeAccess(l *cli.List, c *config.Config) {
	if len(c.Access) == 0 {
		l.Row("access", "every client may map the arena, and so read all of DRAM")
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
	l.Row("access", "rules; %s may map the arena, and so read all of DRAM", who)
}

// summarizeDRAM says what the shares of DRAM are in bytes.
func summarizeDRAM(l *cli.List, c *config.Config) {
	share := func(s float64) string { return human.Bytes(s * float64(c.CPU.Capacity)) }
	b := &c.Budget
	l.Row("DRAM", "%s of shared memory, taken at start", human.Bytes(int64(c.CPU.Capacity)))
	l.Row("", "leases and fills %s, half of that for one client of several; pins %s, loads %s, unwritten %s; %s in all",
		share(b.Leases), share(b.Pins), share(b.Loads), human.Bytes(min(int64(c.Write.Queue), int64(b.Unwritten*float64(c.CPU.Capacity)))), share(config.MaxProtected))
}

// summarizeMemory says how the memory is divided.
func summarizeMemory(l *cli.List, c *config.Config, here bool) {
	p, source := daemon.MemoryPlan(c, here)
	from := "derived"
	if c.Limits.Memory > 0 {
		from = "limits.memory"
	}
	l.Row("memory", "clients outside DRAM %s (%s), %s of it for one user", human.Bytes(p.Clients), from, human.Bytes(c.Limits.UIDMemory*float64(p.Clients)))
	l.Row("", "in all %s: DRAM %s, the database's process %s, the daemon itself %s, what it knows of chunks %s, its clients %s and what is not collected of that %s",
		human.Bytes(p.Total()), human.Bytes(p.Arena), human.Bytes(p.Database), human.Bytes(p.Own), human.Bytes(p.Chunks), human.Bytes(p.Clients), human.Bytes(p.Garbage))
	if c.Admin.WhatIf {
		l.Row("", "of the daemon itself, %s are for the sample of kvstored-lab (admin.what_if)", human.Bytes(sample.Bytes))
	}
	if p.Limit > 0 {
		l.Row("", "of %s, by %s; the Go heap may have %s, unless GOMEMLIMIT says otherwise", human.Bytes(p.Limit), source, human.Bytes(p.GoLimit()))
	}
}

// summarizeChunks says how many chunks there may be, and how large they are where a
// tier's bytes are used up first.
func summarizeChunks(l *cli.List, c *config.Config, here bool) {
	p, _ := daemon.MemoryPlan(c, here)
	from := "derived"
	if c.Limits.Chunks > 0 {
		from = "limits.chunks"
	}
	l.Row("chunks", "%d in DRAM and as many on disk (%s), %d bytes of memory each", p.Number, from, p.Chunks/p.Number)
	full := fmt.Sprintf("DRAM is full with chunks of %s or more on average", human.Bytes(max(int64(c.CPU.Capacity)/p.Number, 4<<10)))
	if c.Disk.Enabled() {
		full += fmt.Sprintf(", the disk with %s", human.Bytes(int64(c.Disk.Capacity)/p.Number))
	}
	l.Row("", "%s; of smaller ones that number is evicted first", full)
}

// summarizeDisk says how much room there is.
func summarizeDisk(l *cli.List, c *config.Disk, here bool) {
	if !c.Enabled() {
		l.Row("disk", "none")
		return
	}
	l.Row("disk", "up to %s, %s left free for others; database in %s", human.Bytes(int64(c.Capacity)), human.Bytes(int64(c.MinFree)), c.MetaPath())
	for _, path := range c.Paths {
		if !here {
			l.Row("", "%s", path)
			continue
		}
		free := "free space unknown"
		if n, err := disk.FreeBytes([]string{path}); err == nil {
			free = human.Bytes(n) + " free"
		}
		if _, err := os.Stat(path); os.IsNotExist(err) {
			free += "; made at start"
		}
		l.Row("", "%s: %s", path, free)
	}
}
