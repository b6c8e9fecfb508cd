package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/daemon"
	"github.com/kvstored/kvstored/internal/human"
)

// How long the measuring of one folder may take, and what the end of a daemon takes
// beside its flush.
const (
	measureWithin = 5 * time.Second
	endTakes      = 5 * time.Second
)

// checkStop says how long it takes to write what only DRAM may have at the end of the
// daemon, at the speed of the disk, and warns where that is too long. Mode through
// leaves little to write.
func checkStop(ctx context.Context, out, warn io.Writer, c *config.Config) {
	if !c.Disk.Enabled() || c.Write.Mode != config.WriteAuto && c.Write.Mode != config.WriteBack {
		return
	}
	speed := 0.0
	for _, path := range c.Disk.Paths {
		ctx, cancel := context.WithTimeout(ctx, measureWithin)
		n, err := disk.MeasureWrite(ctx, existing(path))
		cancel()
		if err != nil {
			fmt.Fprintf(out, "# stop: not known how long it takes to write what only DRAM has: %v\n", err)
			return
		}
		speed += n
	}
	unit, file, known := daemon.UnitStop()
	takes := time.Duration(float64(c.CPU.Capacity) / speed * float64(time.Second))
	fmt.Fprintf(out, "# stop: write.mode %s leaves up to %s in DRAM only; at %s, as measured now with large writes, that takes %s\n",
		c.Write.Mode, human.Bytes(int64(c.CPU.Capacity)), human.Rate(speed/1e9), human.Duration(takes))
	for _, text := range stopWarnings(c, takes, unit, file, known) {
		fmt.Fprintln(warn, "kvstored: warning:", text)
	}
}

// existing is a folder, or the nearest one above it that is there: start makes the
// others, mostly on the same device.
func existing(path string) string {
	for up := path; ; up = filepath.Dir(up) {
		if _, err := os.Stat(up); err == nil || up == filepath.Dir(up) {
			return up
		}
	}
}

// stopWarnings are of what a stop would lose.
func stopWarnings(c *config.Config, takes, unit time.Duration, file string, known bool) (out []string) {
	if takes > c.Stop.Flush {
		out = append(out, fmt.Sprintf("stop.flush is %s, but to write what only DRAM may have takes %s; what is left then is lost: raise it, or set write.mode through", human.Duration(c.Stop.Flush), human.Duration(takes)))
	}
	if known && unit > 0 && unit < c.Stop.Flush+endTakes {
		out = append(out, fmt.Sprintf("%s lets the daemon take %s to stop, less than stop.flush and %s: it would be killed while it writes; raise TimeoutStopSec", file, human.Duration(unit), human.Duration(endTakes)))
	}
	return out
}
