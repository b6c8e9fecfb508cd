package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"

	"github.com/kvstored/kvstored/internal/admin"
)

// seen is a look at a daemon of which so much was asked.
func seen(n uint64, at time.Time) looked {
	v := &statsView{Version: "v1", UptimeSeconds: 60, Advice: "30 % was evicted: 2 GiB more DRAM would have hit 22 %"}
	v.Server.AskedTokens, v.Server.StoredBytes = 100*n, n<<20
	v.Server.HitTokens = map[string]uint64{"cpu": 50 * n, "disk": 25 * n}
	v.Server.Models = []modelView{{"a model", 100 * n, []uint64{50 * n, 25 * n, 0}, n << 20}}
	v.Store.Tiers = map[string]tierView{"cpu": {UsedBytes: 3 << 30, CapacityBytes: 4 << 30}, "disk": {UsedBytes: 1, CapacityBytes: 10, GetBytes: n << 20}}
	l := looked{at: at, stats: v}
	lease := admin.Lease{Name: "engine", Connection: 7, Space: strings.Repeat("0", 32), Loading: true, ReadyTokens: 30, FoundTokens: 40}
	l.clients.Clients = []admin.ClientUse{{Name: "engine\x1b[2J", Connections: 1, PinBytes: 1 << 30}}
	l.jobs.Jobs, l.leases.Leases = []admin.Lease{lease}, []admin.Lease{lease}
	l.pins.Pins = []admin.Pin{{Name: "system prompt", Space: strings.Repeat("0", 32), Bytes: 1 << 30}}
	l.missed.Prompts = []admin.Missed{{LookupID: "cmpl-7", Tokens: 100, Got: 25, Sentence: "it was evicted from DRAM by lru, 2m0s ago; DRAM has evicted 1.0 GiB since, so about as much more would have kept it"}}
	for i := range 40 {
		l.prefixes.Prefixes = append(l.prefixes.Prefixes, admin.Prefix{Hash: fmt.Sprintf("%032x", i), Space: strings.Repeat("1", 32), Heat: float64(40 - i)})
	}
	return l
}

// fed is a model that has seen two looks, two seconds apart, in a window of some size.
func fed(t *testing.T, width, height int) tea.Model {
	t.Helper()
	var m tea.Model = newTop(time.Second, func(context.Context) looked { return seen(1, time.Now()) })
	if m.Init()() == nil {
		t.Error("the first look is not taken")
	}
	for _, msg := range []tea.Msg{tea.WindowSizeMsg{Width: width, Height: height}, seen(10, time.Unix(0, 0)), seen(20, time.Unix(2, 0))} {
		m, _ = m.Update(msg)
	}
	return m
}

func press(m tea.Model, keys ...tea.KeyPressMsg) (tea.Model, tea.Cmd) {
	var cmd tea.Cmd
	for _, k := range keys {
		m, cmd = m.Update(k)
	}
	return m, cmd
}

func letter(r rune) tea.KeyPressMsg { return tea.KeyPressMsg{Code: r, Text: string(r)} }

// TestTop: one key leads to each view, which answers its question and fits its window;
// a client's name cannot command the terminal.
func TestTop(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {40, 12}, {200, 60}, {1, 1}} {
		m := fed(t, size[0], size[1])
		for i, says := range [][]string{
			{"hit ratio", "75.0 %", "5.0 MiB/s", "2 GiB more DRAM"}, {"a model", "50.0 %", "cmpl-7", "evicted from DRAM by lru"}, {"00000000", "40.0"}, {"75 %", "30 of 40 tokens"}, {"1.0 GiB"}, {"system prompt"},
		} {
			m, _ = press(m, letter(rune('1'+i)))
			lines := strings.Split(m.View().Content, "\n")
			if len(lines) > max(size[1], 5) {
				t.Errorf("view %d has %d lines of %d", i, len(lines), size[1])
			}
			for _, line := range lines {
				line = strings.NewReplacer(inverse, "", bold, "", faint, "", plain, "").Replace(line)
				if utf8.RuneCountInString(line) > size[0] || strings.Contains(line, "\x1b") {
					t.Errorf("view %d in %d columns: %q", i, size[0], line)
				}
			}
			for _, text := range says {
				if size[1] > 24 && !strings.Contains(m.View().Content, text) {
					t.Errorf("view %d does not say %q:\n%s", i, text, m.View().Content)
				}
			}
		}
	}
}

// TestTopKeys: Tab goes around, a list scrolls and stops at its ends, space holds the
// looks, q ends, and so does a daemon that is gone.
func TestTopKeys(t *testing.T) {
	m := fed(t, 80, 24)
	for range views {
		m, _ = press(m, tea.KeyPressMsg{Code: tea.KeyTab})
	}
	if got := m.(top).view; got != 0 {
		t.Errorf("Tab does not come around but to view %d", got)
	}
	if text := m.View().Content; !strings.Contains(text, " q ends") || strings.Contains(text, "j more") {
		t.Errorf("it does not say how to leave, or that there is more where there is not:\n%s", text)
	}
	m, _ = press(m, letter('3'))
	first := m.View().Content
	if !strings.Contains(first, "j more, q ends") {
		t.Errorf("it does not say that there is more:\n%s", first)
	}
	for range 100 {
		m, _ = press(m, letter('j'))
	}
	if last := m.View().Content; last == first || !strings.Contains(last, fmt.Sprintf("%032x", 39)[:10]) {
		t.Errorf("the end of the list:\n%s", last)
	}
	m, cmd := press(m, tea.KeyPressMsg{Code: tea.KeySpace, Text: " "})
	if !strings.Contains(m.View().Content, "paused") || cmd != nil {
		t.Error("space does not pause")
	}
	if _, cmd = press(m, letter('q')); cmd == nil || cmd() != tea.Quit() {
		t.Error("q does not end it")
	}
	gone := errors.New("gone")
	if m, cmd = m.Update(looked{err: gone}); cmd == nil || m.(top).lost != gone {
		t.Error("it goes on without a daemon")
	}
	fails(t, exitUsage, "no terminal", "top")
	fails(t, exitUsage, "at least", "top", "--every", "1ms")
	fails(t, exitUsage, "unknown command", "top", "5")
	fails(t, exitUsage, "invalid argument", "top", "--every", "2")
	fails(t, exitUsage, "unknown flag", "top", "--json")
}

// TestTopDenied: to a user who is no admin the views that take one say so.
func TestTopDenied(t *testing.T) {
	var m tea.Model = newTop(time.Second, nil)
	l := seen(1, time.Now())
	l.admin = errors.New("denied: user 5 lacks the admin right")
	m, _ = m.Update(l)
	if m, _ = press(m, letter('5')); !strings.Contains(m.View().Content, "takes an admin: denied") {
		t.Error(m.View().Content)
	}
}
