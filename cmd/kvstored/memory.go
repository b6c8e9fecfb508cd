package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/budget"
)

// memoryPlan divides the memory that this process may use, and names what says
// how much that is. Where that is not told, or not to be asked,
// the source is empty.
func memoryPlan(c *config.Config, here bool) (p budget.Plan, source string) {
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
func (d *daemon) makeBudget() {
	p, source := memoryPlan(&d.cfg, true)
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

// summarizeMemory says how the memory is divided.
func summarizeMemory(l *list, c *config.Config, here bool) {
	p, source := memoryPlan(c, here)
	from := "derived"
	if c.Limits.Memory > 0 {
		from = "limits.memory"
	}
	l.row("memory", "clients outside DRAM %s (%s), %s of it for one user", size(p.Clients), from, size(c.Limits.UIDMemory*float64(p.Clients)))
	l.row("", "in all %s: DRAM %s, the database's process %s, the daemon itself %s, its clients %s and what is not collected of that %s",
		size(p.Total()), size(p.Arena), size(p.Database), size(p.Own), size(p.Clients), size(p.Garbage))
	if p.Limit > 0 {
		l.row("", "of %s, by %s; the Go heap may have %s, unless GOMEMLIMIT says otherwise", size(p.Limit), source, size(p.GoLimit()))
	}
}

// memoryDoubts says by how much the memory does not do.
func memoryDoubts(c *config.Config) []string {
	p, source := memoryPlan(c, true)
	short := p.Short()
	if short == 0 {
		return nil
	}
	less := "lower cpu.capacity"
	if c.Limits.Memory > config.LeastMemory {
		less += " or limits.memory"
	}
	return []string{fmt.Sprintf("memory: all that the daemon may use comes to %s (`kvstored check` has the sum), but %s allows %s: %s by %s, or raise that limit, or the kernel may end the daemon when clients use theirs",
		size(p.Total()), source, size(p.Limit), less, size(short))}
}
