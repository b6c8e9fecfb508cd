package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// plainInterval is how often progress is a line where there is no terminal:
// seldom, so that it is in nobody's way in a file.
const plainInterval = 30 * time.Second

// progress shows how far long work is: a bar on a terminal, otherwise a line
// now and then. It belongs to one goroutine.
type progress struct {
	w     io.Writer
	what  string
	total int
	done  int
	bar   *progressbar.ProgressBar // nil without a terminal
	last  time.Time
}

func newProgress(w io.Writer, what string, total int) *progress {
	p := &progress{w: w, what: what, total: total, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(total,
			progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
			progressbar.OptionSetWidth(32), progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond),
			progressbar.OptionSetPredictTime(true), progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true),
			progressbar.OptionSetTheme(progressbar.Theme{Saucer: "█", SaucerPadding: "░", BarStart: "", BarEnd: ""}),
		)
	}
	return p
}

// step counts one more of the total; detail says how it is going.
func (p *progress) step(detail func() string) {
	p.done++
	if p.bar == nil {
		if time.Since(p.last) >= plainInterval {
			p.last = time.Now()
			fmt.Fprintf(p.w, "%s: %s of %s, %s\n", p.what, comma(p.done), comma(p.total), detail())
		}
		return
	}
	if time.Since(p.last) >= 200*time.Millisecond {
		p.last = time.Now()
		p.bar.Describe(p.what + ": " + detail())
	}
	_ = p.bar.Add(1) // a terminal that cannot be written to shows nothing
}

// end removes the bar.
func (p *progress) end() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
