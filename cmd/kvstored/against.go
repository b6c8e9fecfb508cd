package main

import (
	"context"
	"fmt"
	"io"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/daemon"
)

// againstRunning lists, as comments, the changes that would have the daemon that runs at the
// admin.socket of a configuration run with that configuration.
func againstRunning(ctx context.Context, w io.Writer, next *config.Config) error {
	c := admin.NewClient(next.AdminSocket(), 0)
	defer c.Close()
	var has admin.Config
	if err := c.Get(ctx, "/v1/config", &has); err != nil {
		return adminError{err}
	}
	running, err := config.Parse("the daemon that runs", []byte(has.Running), config.Rules{})
	if err != nil {
		return fmt.Errorf("the configuration of the daemon at %s, which may be of another version: %w", next.AdminSocket(), err)
	}
	changes := config.Compare(&running, next)
	if len(changes) == 0 {
		_, err := fmt.Fprintf(w, "# the daemon at %s runs with this configuration\n", next.AdminSocket())
		return err
	}
	restart := false
	for _, ch := range changes {
		how := "a reload applies it"
		if !ch.Live {
			how, restart = "takes a restart", true
		}
		fmt.Fprintf(w, "# against the daemon that runs: %s: %s -> %s: %s\n", ch.Path, ch.Old, ch.New, how)
	}
	if !restart {
		return nil
	}
	if why := daemon.EmptiesDRAM(&running, next); why != nil {
		_, err = fmt.Fprintf(w, "# that restart empties DRAM, of %s: %v\n", running.CPU.Capacity, why)
		return err
	}
	fmt.Fprintln(w, "# that restart keeps DRAM where systemd or serve --keeper has it, as the log of the daemon says, and else empties it")
	if running.CPU.HugePages != next.CPU.HugePages {
		fmt.Fprintln(w, "# and leaves the pages of DRAM as they are: cpu.hugepages counts for new ones only")
	}
	return nil
}
