package daemon

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/stack"
	"github.com/kvstored/kvstored/tier"
)

// health follows the troubles of the daemon.
type health struct {
	mu      sync.Mutex
	refused uint64    // chunks for which the disk had no room
	puts    uint64    // chunks that it took
	full    bool      // the last was refused
	state   string    // that was told last: ready, not ready or degraded; "" is not ready
	since   time.Time // it was told first
}

// trouble is something that the daemon does without, or waits for.
type trouble struct {
	why error
	do  string // about it
}

var (
	errFull = errors.New("the disk tier has no room for a chunk")
	// remedies are for tiers that are in trouble.
	remedies = [tier.Places]string{
		tier.Disk:   "Repair its device or folder: the tier comes back by itself",
		tier.Remote: "Repair the bucket, the network or the credentials: the tier comes back by itself",
	}
)

// look notes whether the disk has room.
func (h *health) look(s *stack.Stats) {
	refused, puts := s.Written[tier.Disk].Dropped[stack.DropNoSpace].Chunks, s.Tiers[tier.Disk].Puts
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case refused > h.refused:
		h.full = true
	case puts > h.puts:
		h.full = false
	}
	h.refused, h.puts = refused, puts
}

// tell is one line: the troubles, their beginning, and the remedies. Changed is whether another
// state was told before.
func (h *health) tell(now time.Time, state string, list []trouble) (text, before string, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before = cmp.Or(h.state, "not ready") // as which a daemon begins
	if h.state != state {
		h.state, h.since = state, now
	}
	var why, do []string
	for _, t := range list {
		why = append(why, strings.ReplaceAll(t.why.Error(), "\n", "; "))
		if !slices.Contains(do, t.do) {
			do = append(do, t.do)
		}
	}
	if why == nil {
		return state, before, before != state
	}
	form := "15:04"
	if now.Sub(h.since) > 12*time.Hour {
		form = "2006-01-02 15:04"
	}
	return state + ": " + strings.Join(why, "; ") + ", since " + h.since.Format(form) + ". " + strings.Join(do, ". "), before, before != state
}

func (h *health) isFull() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.full
}

// troubles is what the daemon does without.
func (d *Daemon) troubles() (list []trouble) {
	add := func(why error, do string) {
		if why != nil {
			list = append(list, trouble{why, do})
		}
	}
	if short := d.short.Load(); short != nil {
		add(*short, "Lower cpu.capacity, or free memory, and restart the daemon")
	}
	for p, err := range d.stack.Trouble() {
		add(err, remedies[p])
	}
	const restart = "Restart the daemon, and report what its log says of it"
	add(base.BrokenErr(), restart)
	add(d.cpu.Mistrusted(), restart)
	add(d.distrusted.Err(), "`kvstored list spaces` names them; `kvstored forget --space ID`, then `--distrust ID`, begins anew")
	if d.health.isFull() {
		add(errFull, "Free room on its file system, or raise disk.capacity")
	}
	return list
}

// healthNow is ready, or the troubles, their beginning and the remedies. The log has each change.
func (d *Daemon) healthNow() (state, text string) {
	state, level, list := "ready", zerolog.InfoLevel, d.troubles()
	if err := d.ready(); err != nil {
		state, list = "not ready", []trouble{{err, "Engines that are connected are served meanwhile"}}
	} else if list != nil {
		state, level = "degraded", zerolog.WarnLevel
	}
	text, before, changed := d.health.tell(time.Now(), state, list)
	if changed {
		d.log.WithLevel(level).Str("before", before).Msg(text)
	}
	return state, text
}
