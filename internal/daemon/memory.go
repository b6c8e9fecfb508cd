package daemon

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/human"
)

// MemoryPlan divides the memory that this process may use, and names what says
// how much that is. Where that is not told, or not to be asked,
// the source is empty.
func MemoryPlan(c *config.Config, here bool) (p budget.Plan, source string) {
	limit := int64(0)
	if here {
		var err error
		if limit, source, err = arena.MemoryLimit(); err != nil {
			limit, source = 0, "" // loadConfig has told
		}
	}
	database := int64(0)
	if c.Disk.Enabled() {
		database = disk.DatabaseBytes(int64(c.Disk.Capacity))
	}
	return budget.NewPlan(limit, int64(c.CPU.Capacity), database, int64(c.Limits.Memory), int64(config.LeastMemory)), source
}

// makeBudget bounds what clients cost outside the arena, and the Go heap by the
// same sum.
func (d *Daemon) makeBudget() {
	p, source := MemoryPlan(&d.cfg, true)
	heap := p.GoLimit()
	if os.Getenv("GOMEMLIMIT") != "" {
		heap = 0 // the user's
	}
	d.budget = budget.New(budget.Options{
		Bytes: p.Clients, HolderBytes: int64(d.cfg.Limits.UIDMemory * float64(p.Clients)),
		HeapBytes: heap, Log: d.log.With().Str("component", "memory").Logger(),
	})
	if heap > 0 {
		debug.SetMemoryLimit(heap)
	}
	d.log.Info().Int64("limit", p.Limit).Str("source", source).Int64("clients", p.Clients).Int64("heap", debug.SetMemoryLimit(-1)).Msg("memory divided")
}

// memoryWarnings says by how much the memory does not do.
func memoryWarnings(c *config.Config) []string {
	p, source := MemoryPlan(c, true)
	short := p.Short()
	if short == 0 {
		return nil
	}
	less := "lower cpu.capacity"
	if c.Limits.Memory > config.LeastMemory {
		less += " or limits.memory"
	}
	return []string{fmt.Sprintf("memory: all that the daemon may use comes to %s (`kvstored check` has the sum), but %s allows %s: %s by %s, or raise that limit, or the kernel may end the daemon when clients use theirs",
		human.Bytes(p.Total()), source, human.Bytes(p.Limit), less, human.Bytes(short))}
}
