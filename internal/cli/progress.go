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
const PlainInterval = 10 * time.Second

// barInterval is how often a bar is drawn.
const barInterval = 200 * time.Millisecond

// Progress shows how far long work is: a bar on a terminal, otherwise a line
// now and then. Work that ends before the first shows nothing. It belongs to one goroutine.
type Progress struct {
	w           io.Writer
	what        string
	bytes       bool // not steps
	total, done int64
	bar         *progressbar.ProgressBar // nil without a terminal
	begun, last time.Time
}

// NewProgress begins work of so many steps.
func NewProgress(w io.Writer, what string, total int) *Progress {
	return newProgress(w, what, int64(total), false)
}

// NewBytes begins work of so many bytes; At says how far it is.
func NewBytes(w io.Writer, what string, total int64) *Progress {
	return newProgress(w, what, total, true)
}

func newProgress(w io.Writer, what string, total int64, bytes bool) *Progress {
	now := time.Now()
	p := &Progress{w: w, what: what, bytes: bytes, total: total, begun: now, last: now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionSetWidth(32), progressbar.OptionShowCount(), progressbar.OptionShowBytes(bytes), progressbar.OptionUseIECUnits(true),
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
	p.show(": " + what)
}

// Step counts one more of the total; detail says how it is going.
func (p *Progress) Step(detail func() string) {
	p.done++
	p.now(func() string { return ", " + detail() })
}

// At notes how many bytes are done, of all that are known of by now.
func (p *Progress) At(done, total int64) {
	p.done, p.total = done, max(done, total)
	p.now(func() string {
		return fmt.Sprintf(", %s/s", human.Bytes(float64(done)/max(1e-3, time.Since(p.begun).Seconds())))
	})
}

// now shows the progress, unless it was shown shortly before.
func (p *Progress) now(detail func() string) {
	if p.bar != nil {
		if time.Since(p.last) >= barInterval {
			if p.bytes { // the bar has its own rate
				detail = func() string { return "" }
			}
			p.show(detail())
		}
		return
	}
	if time.Since(p.last) < PlainInterval {
		return
	}
	p.last = time.Now()
	done, total := human.Count(p.done), human.Count(p.total)
	if p.bytes {
		done, total = human.Bytes(p.done), human.Bytes(p.total)
	}
	fmt.Fprintf(p.w, "%s: %s of %s%s%s\n", p.what, done, total, detail(), p.left())
}

// left is how long the rest takes at the pace so far.
func (p *Progress) left() string {
	if p.done <= 0 || p.done >= p.total {
		return ""
	}
	return ", " + human.Seconds(time.Since(p.begun).Seconds()*float64(p.total-p.done)/float64(p.done)) + " left"
}

// show draws the bar. A bar that is full is gone, and there may be more to say.
func (p *Progress) show(text string) {
	p.last = time.Now()
	if p.total != p.bar.GetMax64() {
		p.bar.ChangeMax64(p.total)
	}
	_ = p.bar.Set64(min(p.done, p.total-1)) // a terminal that cannot be written to shows nothing
	p.bar.Describe(p.what + text)
}

// End removes the bar.
func (p *Progress) End() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
