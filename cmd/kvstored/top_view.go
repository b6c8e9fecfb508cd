package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/kvstored/kvstored/internal/cli"
	"github.com/kvstored/kvstored/internal/human"
)

const (
	inverse, bold, faint, plain = "\x1b[7m", "\x1b[1m", "\x1b[2m", "\x1b[0m"
)

// View draws the screen.
func (m top) View() tea.View {
	v := tea.NewView(m.screen())
	v.AltScreen = true
	v.WindowTitle = "kvstored top"
	return v
}

// screen is the lines of the screen: title, views, and what fits of the one that is shown.
func (m *top) screen() string {
	body := []string{"looking"}
	if m.last.stats != nil {
		body = views[m.view].rows(m)
	}
	const head = 3
	room := max(1, m.height-head-1)
	from := min(m.scroll, max(0, len(body)-room))
	keys := "q ends"
	if from+room < len(body) {
		keys = "j more, " + keys
	}
	lines := []string{m.title(), m.tabs(keys), ""}
	for _, text := range body[from:min(from+room, len(body))] {
		lines = append(lines, clipped(text, m.width))
	}
	return strings.Join(lines, "\n")
}

func (m *top) title() string {
	text := "kvstored"
	if s := m.last.stats; s != nil {
		text += fmt.Sprintf(" %s, up %s, %s", s.Version, human.Seconds(s.UptimeSeconds), human.Plural(s.Server.Connections, "connection"))
		if s.Store.Recovering {
			text += ", still reading what is on disk"
		}
	}
	if m.paused {
		text += "  (paused: space goes on)"
	}
	return bold + clipped(text, m.width) + plain
}

// tabs names the views, the one that is shown inverted, and, where there is room, keys.
func (m *top) tabs(keys string) string {
	var out []string
	room := m.width
	for i, v := range views {
		name := fmt.Sprintf(" %d %s ", i+1, v.name)
		if room -= len(name); room < 0 {
			break
		}
		if i == m.view {
			name = inverse + name + plain
		}
		out = append(out, name)
	}
	if room > len(keys) {
		out = append(out, faint+strings.Repeat(" ", room-len(keys))+keys+plain)
	}
	return strings.Join(out, "")
}

// clipped is a line of at most so many letters. The texts of clients in it are printable.
func clipped(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}

// overview: how full, how many hits, how much is moved.
func (m *top) overview() (out []string) {
	s := m.last.stats
	out = printed(s.printTiers)
	out = append(out, "")
	out = append(out, printed(s.printHits)...)
	out = append(out, "", m.overTime("hit ratio", "%", func(a, b *moment) float64 {
		return 100 * float64(b.hit-a.hit) / float64(b.asked-a.asked)
	}))
	out = append(out, m.overTime("from disk", "%", func(a, b *moment) float64 {
		return 100 * float64(b.disk-a.disk) / float64(b.asked-a.asked)
	}))
	rate := func(of func(*moment) uint64) func(a, b *moment) float64 {
		return func(a, b *moment) float64 { return float64(of(b)-of(a)) / b.at.Sub(a.at).Seconds() }
	}
	out = append(out, m.overTime("stored", "B/s", rate(func(x *moment) uint64 { return x.stored })))
	if _, ok := s.Store.Tiers["disk"]; ok {
		out = append(out,
			m.overTime("disk read", "B/s", rate(func(x *moment) uint64 { return x.diskRead })),
			m.overTime("disk write", "B/s", rate(func(x *moment) uint64 { return x.diskWritten })))
	}
	out = append(out, m.overTime("requests", "/s", rate(func(x *moment) uint64 { return x.reqs })))
	if s.Advice != "" {
		out = append(out, "")
		out = append(out, cli.Wrapped(s.Advice, m.width)...)
	}
	return out
}

// misses: why tokens were not hits, the hits of each model, and the last prompts that missed.
func (m *top) misses() (out []string) {
	s := m.last.stats
	if out = printed(func(w io.Writer) { s.printMissed(w, m.width) }); len(out) == 0 {
		out = []string{"nothing was missed"}
	}
	if len(s.Server.Models) > 0 {
		out = append(append(out, ""), modelLines(s.Server.Models)...)
	}
	if len(m.last.missed.Prompts) > 0 {
		out = append(append(out, ""), printed(func(w io.Writer) { printMisses(w, &m.last.missed, m.width) })...)
	}
	return out
}

// modelLines is the hits of each model, of the one that asks most first.
func modelLines(models []modelView) []string {
	models = slices.Clone(models)
	slices.SortStableFunc(models, func(a, b modelView) int { return cmp.Compare(b.AskedTokens, a.AskedTokens) })
	var t cli.Table
	t.Row("model", "asked", "hit", "in DRAM", "on disk", "stored")
	for i := range models {
		of := &models[i]
		var hit [3]uint64
		all := uint64(0)
		for p, n := range of.HitTokens {
			hit[min(p, 2)] += n
			all += n
		}
		asked := float64(of.AskedTokens)
		t.Row(short(of.Model, 36), human.Count(of.AskedTokens), human.Percent(float64(all), asked), human.Percent(float64(hit[0]), asked), human.Percent(float64(hit[1]), asked), human.Bytes(of.StoredBytes))
	}
	return printed(func(w io.Writer) { t.Print(w, "") })
}

// prefixes: the hottest.
func (m *top) prefixes() []string {
	return m.named(func(b io.Writer) {
		r := m.last.prefixes
		r.Next = ""
		printPrefixes(b, &r)
	})
}

// jobs: the prefetches that load, each with a bar.
func (m *top) jobs() []string {
	return m.named(func(b io.Writer) {
		if len(m.last.jobs.Jobs) == 0 {
			fmt.Fprintln(b, "nothing is being loaded")
		}
		for i := range m.last.jobs.Jobs {
			j := &m.last.jobs.Jobs[i]
			share := float64(j.ReadyTokens) / float64(max(1, j.FoundTokens))
			fmt.Fprintf(b, "%-16s %s %4.0f %%  %s of %s tokens, %s\n", short(j.Name, 16), gauge(share, 20), 100*share,
				human.Count(j.ReadyTokens), human.Count(j.FoundTokens), ago(j.AgeSeconds))
			fmt.Fprintln(b, prompt80(j))
		}
		if len(m.last.jobs.Work) > 0 {
			fmt.Fprintln(b)
			printWork(b, m.last.jobs.Work)
		}
	})
}

// clients: who holds how much, and for which requests.
func (m *top) clients() []string {
	return m.named(func(b io.Writer) {
		printClients(b, &m.last.clients)
		fmt.Fprintln(b)
		printLeases(b, &m.last.leases)
	})
}

// held: pins and retains.
func (m *top) held() []string {
	return m.named(func(b io.Writer) {
		writePins(b, &m.last.pins)
		fmt.Fprintln(b)
		writeRetains(b, &m.last.retains)
	})
}

// named is the lines of a view that takes an admin.
func (m *top) named(print func(io.Writer)) []string {
	if err := m.last.admin; err != nil {
		return cli.Wrapped("This takes an admin: "+strings.ReplaceAll(err.Error(), "\n", "; "), m.width)
	}
	return printed(print)
}

// overTime is a line with the newest value of something and how it was before, where it
// is defined.
func (m *top) overTime(name, unit string, value func(a, b *moment) float64) string {
	const head = 34
	var values []float64
	for i := max(1, len(m.past)-max(1, m.width-head)); i < len(m.past); i++ {
		values = append(values, value(&m.past[i-1], &m.past[i]))
	}
	now, most := math.NaN(), 0.0
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			now, most = v, max(most, v)
		}
	}
	if unit == "%" {
		most = 100
	}
	text := "-"
	switch {
	case math.IsNaN(now):
	case unit == "%":
		text = fmt.Sprintf("%.1f %%", now)
	case unit == "B/s":
		text = human.Bytes(now) + "/s"
	default:
		text = human.Count(now) + unit
	}
	return fmt.Sprintf("%-12s%14s   %s", name, text, spark(values, most))
}

// spark is a line of values, each a column of an eighth of a line at least if it is
// more than nothing.
func spark(values []float64, most float64) string {
	columns := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, v := range values {
		level := 0
		if v > 0 && most > 0 && !math.IsInf(v, 0) {
			level = 1 + int(min(v/most, 1)*float64(len(columns)-2))
		}
		b.WriteRune(columns[level])
	}
	return b.String()
}

// gauge is a bar of so many columns.
func gauge(share float64, columns int) string {
	full := int(max(0, min(share, 1)) * float64(columns))
	return strings.Repeat("█", full) + strings.Repeat("░", columns-full)
}

// printed is the lines that a function prints.
func printed(print func(io.Writer)) []string {
	var b bytes.Buffer
	print(&b)
	if b.Len() == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
}
