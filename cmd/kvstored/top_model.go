package main

import (
	"context"
	"time"

	tea "charm.land/bubbletea/v2"
)

// views are what top can show, in the order of their keys.
var views = []struct {
	name string
	rows func(*top) []string
}{
	{"overview", (*top).overview},
	{"misses", (*top).misses},
	{"prefixes", (*top).prefixes},
	{"jobs", (*top).jobs},
	{"clients", (*top).clients},
	{"held", (*top).held},
}

// mostPast is how many looks top remembers, for its lines over time.
const mostPast = 600

// top is the state of the command: the looks taken, and the view that is shown. It is a
// value, as its library wants models to be.
type top struct {
	look   func(context.Context) looked
	every  time.Duration
	last   looked
	past   []moment // oldest first
	view   int
	scroll int
	paused bool
	width  int
	height int
	lost   error // why it ended
}

// moment is the counters at a look.
type moment struct {
	at                          time.Time
	asked, hit, disk, stored    uint64
	diskRead, diskWritten, reqs uint64
}

func newTop(every time.Duration, look func(context.Context) looked) top {
	return top{look: look, every: every, width: 80, height: 24}
}

// again is the time for another look.
type again struct{}

// Init has the first look taken.
func (m top) Init() tea.Cmd { return m.ask() }

// ask takes a look beside the screen.
func (m top) ask() tea.Cmd {
	look, timeout := m.look, max(m.every, 10*time.Second)
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		return look(ctx)
	}
}

// Update follows a key, a look, or a change of the window.
func (m top) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case again:
		if m.paused {
			return m, m.wait()
		}
		return m, m.ask()
	case looked:
		if msg.err != nil {
			m.lost = msg.err
			return m, tea.Quit
		}
		m.last = msg
		m.past = append(m.past[max(0, len(m.past)+1-mostPast):], momentOf(&msg))
		return m, m.wait()
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

func (m top) wait() tea.Cmd { return tea.Tick(m.every, func(time.Time) tea.Msg { return again{} }) }

// key does what a key is for.
func (m top) key(name string) (tea.Model, tea.Cmd) {
	to := m.view
	switch name {
	case "q", "ctrl+c", "esc":
		return m, tea.Quit
	case "tab", "right", "l":
		to = (m.view + 1) % len(views)
	case "shift+tab", "left", "h":
		to = (m.view + len(views) - 1) % len(views)
	case "space", "p":
		m.paused = !m.paused
	case "down", "j":
		m.scroll++
	case "up", "k":
		m.scroll = max(0, m.scroll-1)
	default:
		if len(name) == 1 && name[0] >= '1' && int(name[0]-'1') < len(views) {
			to = int(name[0] - '1')
		}
	}
	if to != m.view {
		m.view, m.scroll = to, 0
	}
	return m, nil
}

func momentOf(l *looked) moment {
	s := &l.stats.Server
	d := l.stats.Store.Tiers["disk"]
	out := moment{at: l.at, asked: s.AskedTokens, disk: s.HitTokens["disk"], stored: s.StoredBytes, diskRead: d.GetBytes, diskWritten: d.PutBytes, reqs: s.Requests}
	for _, n := range s.HitTokens {
		out.hit += n
	}
	return out
}
