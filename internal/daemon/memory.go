package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/cpu"
	"github.com/kvstored/kvstored/disk"
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/policy"
	"github.com/kvstored/kvstored/tier"
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
	if limit > 0 {
		limit = max(1, limit-explain.SampleBytes)
	}
	p = budget.NewPlan(limit, int64(c.CPU.Capacity), database, int64(c.Limits.Memory), int64(config.LeastMemory), chunksOf(c))
	p.Own += explain.SampleBytes
	if limit > 0 {
		p.Limit += explain.SampleBytes
	}
	return p, source
}

// What a chunk takes at most beside its payload: its entry in the ledger of DRAM, and
// in that of the disk, 81 to 112 bytes by policy, 241 where that learns; 64 in the
// index for one that stands alone; 32 for its extent. docs/benchmarks.md has more.
const (
	chunkBytes   = 320
	learnedBytes = 580
)

// leastChunks is derived at least, and one for each meanChunk bytes of DRAM, so that
// chunks of that size on average fill it.
const (
	leastChunks = 64 << 10
	meanChunk   = 64 << 10
	// meanOnDisk is the mean size at which the number derived, where there is memory
	// for it, fills the disk.
	meanOnDisk = 16 << 10
)

// chunksOf says how many chunks a configuration would have, and what each costs.
func chunksOf(c *config.Config) budget.Chunks {
	dram, onDisk := int64(c.CPU.Capacity), int64(c.Disk.Capacity)
	n := budget.Chunks{
		EachBytes: chunkBytes,
		Least:     max(leastChunks, dram/meanChunk), Most: max(dram/arena.AlignBytes, onDisk/meanOnDisk),
	}
	for _, name := range []string{c.CPU.Policy, c.Disk.Policy} {
		if slices.Contains(policy.Planners(), name) {
			n.EachBytes = learnedBytes
		}
	}
	if c.CPU.Keep {
		n.EachBytes += cpu.RecordBytes
	}
	return n
}

// chunkWarnings says where the number of chunks is reached before disk.capacity, with
// chunks that engines have.
func chunkWarnings(c *config.Config) []string {
	p, _ := MemoryPlan(c, true)
	mean := int64(c.Disk.Capacity) / p.Number
	if mean <= meanChunk {
		return nil
	}
	return []string{fmt.Sprintf("disk tier: its %d chunks, for which there is memory, come to disk.capacity (%s) only with %s each on average: smaller ones leave the rest of it unused; give the daemon more memory, or lower disk.capacity",
		p.Number, human.Bytes(int64(c.Disk.Capacity)), human.Bytes(mean))}
}

// OfOneUser is how much one user may have of what all clients may cost.
func OfOneUser(clients int64) int64 { return clients / 4 * 3 }

// makeBudget bounds what clients cost outside the arena, and the Go heap by the
// same sum.
func (d *Daemon) makeBudget() {
	p, source := MemoryPlan(&d.cfg, true)
	heap := p.GoLimit()
	if os.Getenv("GOMEMLIMIT") != "" {
		heap = 0 // the user's
	}
	d.budget = budget.New(budget.Options{
		Bytes: p.Clients, HolderBytes: OfOneUser(p.Clients),
		HeapBytes: heap, Log: d.log.With().Str("component", "memory").Logger(),
	})
	if heap > 0 {
		debug.SetMemoryLimit(heap)
	}
	d.log.Info().Int64("limit", p.Limit).Str("source", source).Int64("clients", p.Clients).Int64("chunks", p.Number).Int64("heap", debug.SetMemoryLimit(-1)).Msg("memory divided")
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

// populatedReady is how much of DRAM has to be there, if it is so large, before the daemon is ready.
const populatedReady = 1 << 30

// populate faults DRAM in, until ctx ends. Without some of it the daemon serves.
func (d *Daemon) populate(ctx context.Context) error {
	if !d.arena.Populating() {
		return nil
	}
	err := d.arena.Populate(ctx)
	if ctx.Err() != nil {
		return nil
	}
	d.countHuge()
	if err == nil {
		logArena(&d.log, d.arena, "DRAM is populated")
	} else {
		err = fmt.Errorf("DRAM has only %s of the %s of cpu.capacity: %w",
			human.Bytes(d.arena.Populated()), human.Bytes(int64(d.cfg.CPU.Capacity)), err)
		d.short.Store(&err)
		d.log.Error().Err(err).Msg("DRAM stays smaller than it should be")
	}
	return nil
}

// populating says how far DRAM is while there is too little of it; nil when there is enough, or
// no more will be.
func (d *Daemon) populating() error {
	if text := d.populateText(); text != "" && d.arena.Populated() < populatedReady {
		return errors.New(text)
	}
	return nil
}

// countHuge has statistics say how much of DRAM is in huge pages.
func (d *Daemon) countHuge() {
	if err := d.arena.CountHuge(); err != nil {
		d.log.Warn().Err(err).Msg("huge pages of DRAM are not counted")
	}
}

// progressInterval is how often the log says how far long work is.
const progressInterval = 10 * time.Second

// pace is where a piece of work on bytes began, from which its rate is reckoned. The zero
// value has not begun.
type pace struct {
	mu struct {
		sync.Mutex
		since time.Time
		from  int64 // bytes that were done then
		last  int64 // that were done when it was asked last
	}
}

// progress logs how far populating DRAM and surveying the disk tier are.
func (d *Daemon) progress(ctx context.Context, every time.Duration) error {
	texts := func() []string { return []string{d.populateText(), d.surveyText()} }
	texts() // the rates begin here
	for base.Sleep(ctx, every) == nil {
		for _, text := range texts() {
			if text != "" {
				d.log.Info().Msg(text)
			}
		}
	}
	return nil
}

// populateText says how far DRAM is; "" where no more of it will be there.
func (d *Daemon) populateText() string {
	if !d.arena.Populating() {
		return ""
	}
	return "DRAM is being populated: " + d.populates.far(d.arena.Populated(), d.arena.Stats().CapacityBytes, time.Now())
}

// surveyText says how far the disk tier is with the headers of its segments; "" where it reads none.
func (d *Daemon) surveyText() string {
	n := d.store.Operator.Stats().Tiers[tier.Disk].Counters
	done, total := int64(n["rebuild_bytes"]), int64(n["rebuild_total_bytes"])
	text := d.surveys.far(done, total, time.Now())
	if total == 0 {
		return ""
	}
	return "the disk tier is being surveyed: " + text
}

// far says how far the work is, its rate, and how long the rest takes at that. Work of no
// bytes, or of fewer than before, is over: what comes next begins anew.
func (p *pace) far(done, total int64, now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if total == 0 || done < p.mu.last {
		p.mu.since = time.Time{}
	}
	p.mu.last = done
	if p.mu.since.IsZero() && total > 0 {
		p.mu.since, p.mu.from = now, done
	}
	text := fmt.Sprintf("%s of %s", human.Bytes(done), human.Bytes(total))
	if rate := float64(done-p.mu.from) / max(1e-3, now.Sub(p.mu.since).Seconds()); rate >= 1 {
		text += fmt.Sprintf(", %s/s, %s left", human.Bytes(rate), human.Seconds(float64(max(0, total-done))/rate))
	}
	return text
}
