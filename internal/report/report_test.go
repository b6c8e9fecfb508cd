package report

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/demo"
	"github.com/kvstored/kvstored/internal/replay"
)

// played is a run of 60 prompts, half of them before a restart.
func played() (*replay.Series, replay.Result) {
	s, tally := new(replay.Series), replay.NewTally()
	for i := range 60 {
		o := replay.Outcome{Tokens: 1000, Chunks: 4, Ready: time.Duration(i+1) * time.Millisecond, Lookup: time.Microsecond}
		o.Hit = client.Count{Chunks: 3, Tokens: 768}
		o.Tiers[i%2] = o.Hit
		phase := replay.BeforeRestart
		if i >= 30 {
			phase = replay.AfterRestart
		}
		s.Add(&o, i%6, phase)
		tally.Add(&o)
	}
	return s, tally.Result(time.Second)
}

// talked is a talk of two people, whose first prompt was only computed.
func talked(t *testing.T) *demo.TalkResult {
	t.Helper()
	rig := new(talkRig)
	r, err := demo.Talk(t.Context(), demo.TalkOptions{
		Users: 2, Turns: 2, Vocabulary: 512, Daemon: rig, Engine: rig, Answered: func(int, int, demo.Way) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = "<b>an engine"
	return r
}

// talkRig is a daemon and an engine that do nothing.
type talkRig struct{}

func (*talkRig) Start(context.Context) (demo.Found, error) { return demo.Found{}, nil }
func (*talkRig) Stop(context.Context) error                { return nil }
func (*talkRig) Socket() string                            { return "" }
func (*talkRig) FromDisk(context.Context) (int64, error)   { return 0, nil }
func (*talkRig) Ask(_ context.Context, q demo.Question) (demo.Answer, error) {
	return demo.Answer{Restored: 1024, FirstTokenSeconds: float64(len(q.Prompt)) / 1e4}, nil
}

// TestTalkPage: it says how often which way was how soon, and that answers differ.
func TestTalkPage(t *testing.T) {
	r := talked(t)
	text := written(t, Talk(r))
	for _, want := range []string{"2 people, 2 turns each", "&lt;b&gt;an engine", "from DRAM", "after a restart", "1.0 ×", "every byte right", "<rect"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	r.Different = 1
	if text := written(t, Talk(r)); !strings.Contains(text, "wrong bytes") {
		t.Error("the page does not say that an answer differs")
	}
}

func written(t *testing.T, p *Page) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "page.html")
	if err := Write(path, p); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestPages: each page is whole, for light and dark, loads nothing, and shows
// names of files as they are.
func TestPages(t *testing.T) {
	s, r := played()
	o := replay.Options{Name: "/dir/<b>a&b.jsonl", BlockTokens: 256, PayloadBytes: 1 << 16, Concurrency: 1}
	for name, page := range map[string]*Page{
		"replay":          Replay(&o, &r, s),
		"demo":            Demo(&demo.Result{Users: 10, Turns: 6, Total: r}, s),
		"talk":            Talk(talked(t)),
		"talk of nothing": Talk(&demo.TalkResult{Users: 1}),
		"demo of nothing": Demo(&demo.Result{Users: 1, Turns: 1}, new(replay.Series)),
	} {
		text := written(t, page)
		if !strings.HasSuffix(text, "</html>\n") || strings.Count(text, "<svg") != strings.Count(text, "</svg>") || !strings.Contains(text, "prefers-color-scheme:dark") {
			t.Errorf("%s: the page is not whole:\n%s", name, text)
		}
		for _, no := range []string{"<b>a", "<script", "<link", "src=", "@import", "url(", "NaN", "ZgotmplZ", "%!"} {
			if strings.Contains(text, no) {
				t.Errorf("%s: the page has %s", name, no)
			}
		}
	}
	text := written(t, Replay(&o, &r, s))
	for _, want := range []string{"&lt;b&gt;a&amp;b.jsonl", "every byte right", "from DRAM", "from disk", "<rect", "76.8 %"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	if again := written(t, Replay(&o, &r, s)); untimed(again) != untimed(text) {
		t.Error("the same run makes another page")
	}
}

// untimed is a page without its last lines, which have the time.
func untimed(text string) string {
	text, _, _ = strings.Cut(text, "<footer>")
	return text
}

// TestCanWrite: a name that asks for a picture is refused, in upper case too,
// and any other is a page.
func TestCanWrite(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.png", "a.PDF", "a.svg", "a.Jpeg"} {
		if err := CanWrite(filepath.Join(dir, name)); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"a.html", "a.htm", "a", "png", "a.png.html"} {
		if err := CanWrite(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("looking left %v, %v", left, err)
	}
}
