package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/kvstored/kvstored/internal/cli/human"
)

// PlainInterval is how often progress is a line where there is no terminal:
// seldom, so that a log file stays short.
const PlainInterval = 30 * time.Second

// barInterval is how often a bar is drawn.
const barInterval = 200 * time.Millisecond

// Progress shows how far long work is: a bar on a terminal, otherwise a line
// now and then. It belongs to one goroutine.
type Progress struct {
	w     io.Writer
	what  string
	total int
	done  int
	bar   *progressbar.ProgressBar // nil without a terminal
	last  time.Time
}

// NewProgress begins work of so many steps.
func NewProgress(w io.Writer, what string, total int) *Progress {
	p := &Progress{w: w, what: what, total: total, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionSetWidth(32), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
		)
	}
	return p
}

// Begin says what the work does from now on: on a terminal until the next step,
// otherwise in one line.
func (p *Progress) Begin(what string) {
	if p.bar == nil {
		fmt.Fprintf(p.w, "%s: %s\n", p.what, what)
		return
	}
	p.show(what)
}

// Step counts one more of the total; detail says how it is going.
func (p *Progress) Step(detail func() string) {
	p.done++
	interval := PlainInterval
	if p.bar != nil {
		interval = barInterval
	}
	switch {
	case time.Since(p.last) < interval:
	case p.bar != nil:
		p.show(detail())
	default:
		p.last = time.Now()
		fmt.Fprintf(p.w, "%s: %s of %s, %s\n", p.what, human.Count(p.done), human.Count(p.total), detail())
	}
}

// show draws the bar. A bar that is full is gone, and there may be more to say.
func (p *Progress) show(text string) {
	p.last = time.Now()
	_ = p.bar.Set(min(p.done, p.total-1)) // a terminal that cannot be written to shows nothing
	p.bar.Describe(p.what + ": " + text)
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
