package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/server"
)

// unfit is everything found on this machine that keeps serve from starting.
type unfit []error

func (u unfit) Error() string { return errors.Join(u...).Error() }

// obstacles tries what serve does before it serves, and undoes it.
func obstacles(c *config.Config) (errs unfit) {
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	var held []net.Listener // to the end: two addresses may come to one
	try := func(key, addr string) {
		if isSocket(addr) {
			if err := server.CanListen(addr, c.Listen.Mode, c.Listen.Group); err != nil {
				add(fmt.Errorf("%s: %w", key, err))
			}
			return
		}
		l, err := listenTCP(key, addr)
		if err == nil {
			held = append(held, l)
		}
		add(err)
	}
	try("listen.socket", c.Listen.Socket)
	if c.Admin.Listen != "" {
		try("admin.listen", c.Admin.Listen)
	}
	for _, addr := range c.Listen.RESP {
		try("listen.resp", addr)
	}
	if c.Listen.LM != "" {
		try("listen.lm", c.Listen.LM)
	}
	for _, l := range held {
		_ = l.Close()
	}
	_, err := readPassword(c.Listen.RESPPasswordFile)
	add(err)
	if c.Disk.Enabled() {
		add(disk.Check(diskOptions(&c.Disk, zerolog.Nop())))
	}
	return errs
}

// doubts say what serve would start with, but hardly as it was meant; if here,
// on this machine.
func doubts(c *config.Config, here bool) (out []string) {
	if s := &c.Remote.S3; s.Endpoint != "" && !s.Enabled() {
		out = append(out, "remote.s3.endpoint is set, but there is no remote tier without remote.s3.bucket")
	}
	if len(c.Listen.AllowUIDs) > 0 {
		var open []string
		if c.Listen.RESPPasswordFile == "" {
			open = append(open, c.Listen.RESP...)
		}
		if c.Listen.LM != "" {
			open = append(open, c.Listen.LM)
		}
		for _, addr := range slices.DeleteFunc(open, isSocket) {
			out = append(out, fmt.Sprintf("listen.allow_uids does not bind who connects over TCP, and %s asks for no password; use the path of a socket", addr))
		}
	}
	for i, r := range c.Access {
		if own := uint32(os.Getuid()); here && slices.Contains(r.UIDs, own) {
			out = append(out, fmt.Sprintf("access[%d] names user %d, which runs the daemon and may do everything, whatever the rules say; run the daemon as a user of its own", i, own))
		}
	}
	if here {
		out = append(out, memoryDoubts(c)...)
		out = append(out, diskLimits(&c.Disk)...)
	}
	return out
}
