package dashboard

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/internal/human"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/tier"
)

// view is what a page shows: texts of ours by where they stand. A table that is null
// is not shown.
type view struct {
	Names  bool              `json:"names"`
	Text   map[string]string `json:"text"`
	Tiers  []bar             `json:"tiers"`
	Charts map[string]drawn  `json:"charts"`
	Tables map[string]*table `json:"tables"`
}

// bar is how full a tier is.
type bar struct {
	Name  string  `json:"name"`
	Text  string  `json:"text"`
	Share float64 `json:"share"` // 0 to 1
	Off   bool    `json:"off"`
}

// drawn is a chart and what its colors mean.
type drawn struct {
	SVG    string   `json:"svg"`
	Legend []swatch `json:"legend"`
}

type swatch struct {
	Class string `json:"class"`
	Name  string `json:"name"`
}

type table struct {
	Head []string   `json:"head"`
	Rows [][]string `json:"rows"`
	Note string     `json:"note"` // what else there is; or why there are no rows
}

// mostRows is how many rows of a table a page shows.
const mostRows = 50

// fewMisses is how many prompts that missed something a page shows.
const fewMisses = 10

// titles are the tiers as people call them.
var titles = [...]string{tier.CPU: "DRAM", tier.Disk: "disk", tier.Remote: "bucket"}

// look makes the view of this moment.
func (d *Dashboard) look(names bool) *view {
	n := d.o.Numbers()
	v := &view{Names: names, Text: make(map[string]string), Charts: make(map[string]drawn), Tables: make(map[string]*table)}
	hit := uint64(0)
	for p := range titles {
		hit += n.Server.HitTokens[tier.Place(p)]
	}
	asked := float64(n.Server.AskedTokens)
	v.Text["version"], v.Text["uptime"] = n.Version, human.Duration(n.Uptime)
	v.Text["hit"] = human.Percent(float64(hit), asked)
	v.Text["asked"] = human.Count(n.Server.AskedTokens)
	v.Text["disk_hit"] = human.Percent(float64(n.Server.HitTokens[tier.Disk]), asked)
	v.Text["clients"] = human.Count(n.Server.Connections)
	v.Text["advice"] = cmp.Or(n.Advice, "No client has asked for a prompt yet.")
	v.tiers(&n)
	v.missed(&n)
	v.models(n.Server.Models)
	steps := d.past.steps(60)
	v.Charts["hits"], v.Charts["flow"] = hitsChart(steps), flowChart(steps, n.Tiers)
	if names {
		v.holders(d.o.API)
	}
	return v
}

func (v *view) tiers(n *Numbers) {
	t := &table{Head: []string{"tier", "chunks", "used", "hits", "of asked", "read", "written", "evicted"}}
	for p, name := range titles {
		s, ok := n.Tiers[tier.Place(p)]
		if !ok {
			continue
		}
		b := bar{Name: name, Text: human.Bytes(s.UsedBytes), Off: s.Off}
		if s.CapacityBytes > 0 {
			b.Share = min(1, float64(s.UsedBytes)/float64(s.CapacityBytes))
			b.Text += fmt.Sprintf(" of %s, %s", human.Bytes(s.CapacityBytes), human.Percent(float64(s.UsedBytes), float64(s.CapacityBytes)))
		}
		if s.Off {
			b.Text += ", switched off"
		}
		v.Tiers = append(v.Tiers, b)
		read, hits := human.Bytes(s.GetBytes), n.Server.HitTokens[tier.Place(p)]
		if p == int(tier.CPU) {
			read = "in place"
		}
		t.Rows = append(t.Rows, []string{name, human.Count(s.Entries), human.Bytes(s.UsedBytes), human.Count(hits),
			human.Percent(float64(hits), float64(n.Server.AskedTokens)), read, human.Bytes(s.PutBytes), human.Count(s.Evictions)})
	}
	v.Tables["tiers"] = t
}

func (v *view) missed(n *Numbers) {
	t := &table{Head: []string{"why tokens were missed", "in", "tokens", "of asked"}, Note: "Nothing was missed."}
	missed := slices.Clone(n.Server.Missed.Missed)
	slices.SortFunc(missed, func(a, b missing.Total) int { return cmp.Compare(b.Tokens, a.Tokens) })
	for _, m := range missed {
		if m.Tokens == 0 {
			continue
		}
		in := "-"
		for p, name := range titles {
			if tier.Place(p).String() == m.Tier {
				in = name
			}
		}
		t.Rows = append(t.Rows, []string{spaced(m.Reason), in, human.Count(m.Tokens), human.Percent(float64(m.Tokens), float64(n.Server.AskedTokens))})
	}
	v.Tables["missed"] = t
}

// models is what each model had, the one that asks most first.
func (v *view) models(models []server.ModelStats) {
	if len(models) == 0 {
		return
	}
	models = slices.Clone(models)
	slices.SortStableFunc(models, func(a, b server.ModelStats) int { return cmp.Compare(b.AskedTokens, a.AskedTokens) })
	t := &table{Head: []string{"model", "asked", "hit", "in DRAM", "on disk", "stored"}}
	for i := range models[:min(mostRows, len(models))] {
		m := &models[i]
		all, asked := uint64(0), float64(m.AskedTokens)
		for _, n := range m.HitTokens {
			all += n
		}
		t.Rows = append(t.Rows, []string{cmp.Or(m.Model, "-"), human.Count(m.AskedTokens), human.Percent(float64(all), asked),
			human.Percent(float64(m.HitTokens[tier.CPU]), asked), human.Percent(float64(m.HitTokens[tier.Disk]), asked), human.Bytes(m.StoredBytes)})
	}
	v.Tables["models"] = t.with(len(models) - len(t.Rows))
}

// holders fills the tables of clients, jobs, pins and retains.
func (v *view) holders(a *admin.API) {
	w := a.Watch(mostRows)
	clients := &table{Head: []string{"client", "user", "connections", "leased", "pinned", "memory"}, Note: "No client is connected."}
	for _, c := range w.Clients.Clients {
		clients.Rows = append(clients.Rows, []string{cmp.Or(c.Name, "-"), fmt.Sprint(c.UID), human.Count(c.Connections), human.Bytes(c.LeaseBytes), human.Bytes(c.PinBytes), human.Bytes(c.Memory)})
	}
	jobs := &table{Head: []string{"client", "prompt", "ready", "of tokens", "", "since"}, Note: "Nothing is being loaded."}
	for i := range w.Jobs.Jobs {
		j := &w.Jobs.Jobs[i]
		jobs.Rows = append(jobs.Rows, []string{cmp.Or(j.Name, "-"), cmp.Or(j.LookupID, j.Model, j.Space[:8]), human.Count(j.ReadyTokens), human.Count(j.FoundTokens),
			human.Percent(float64(j.ReadyTokens), float64(j.FoundTokens)), human.Seconds(j.AgeSeconds)})
	}
	misses := &table{Head: []string{"prompt", "model", "tokens", "had", "", "why the rest was missed"}, Note: "No prompt that an engine has named missed anything lately."}
	for i := range w.Misses.Prompts[:min(len(w.Misses.Prompts), fewMisses)] {
		m := &w.Misses.Prompts[i]
		misses.Rows = append(misses.Rows, []string{m.LookupID, cmp.Or(m.Model, m.Space[:8]), human.Count(m.Tokens), human.Count(m.Got),
			human.Percent(float64(m.Got), float64(m.Tokens)), m.Sentence})
	}
	v.Tables["misses"] = misses
	work := &table{Head: []string{"the daemon's own work", "in", "done", "of"}}
	for _, of := range w.Jobs.Work {
		amount := func(n uint64) string {
			if of.Unit == "bytes" {
				return human.Bytes(n)
			}
			return human.Count(n) + " " + of.Unit
		}
		row := []string{of.What, of.Tier, amount(of.Done), amount(of.Of)}
		if of.Of == 0 {
			row[3] = "-"
		}
		work.Rows = append(work.Rows, row)
	}
	if len(work.Rows) > 0 {
		v.Tables["work"] = work
	}
	held := &table{Head: []string{"name", "kind", "who", "chunks", "bytes", "ends in"}, Note: "Nothing is pinned or retained."}
	for _, p := range w.Pins.Pins {
		held.Rows = append(held.Rows, []string{cmp.Or(p.Name, "-"), "pin", fmt.Sprintf("connection %d", p.Connection), human.Count(p.Chunks), human.Bytes(p.Bytes), human.Seconds(p.ExpiresSeconds)})
	}
	for _, h := range w.Retains.Retains {
		held.Rows = append(held.Rows, []string{cmp.Or(h.Name, "-"), fmt.Sprintf("retain, priority %d", h.Priority), fmt.Sprintf("user %d", h.UID), human.Count(h.Chunks), human.Bytes(h.Bytes), human.Seconds(h.ExpiresSeconds)})
	}
	v.Tables["clients"], v.Tables["jobs"], v.Tables["held"] = clients.with(w.Clients.LeftOut), jobs.with(w.Jobs.LeftOut), held.with(w.Pins.LeftOut+w.Retains.LeftOut)
}

// with says how many rows are left out.
func (t *table) with(leftOut int) *table {
	switch {
	case leftOut > 0:
		t.Note = fmt.Sprintf("and %s more", human.Count(leftOut))
	case len(t.Rows) > 0:
		t.Note = ""
	}
	return t
}

// spaced is a name with spaces.
func spaced(name string) string {
	b := []byte(name)
	for i := range b {
		if b[i] == '_' {
			b[i] = ' '
		}
	}
	return string(b)
}
