package human

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"
)

// PlainInterval is how often progress is a line where there is no terminal:
// seldom, so that a log file stays short.
const PlainInterval = 10 * time.Second

// drawInterval is how often a terminal shows it anew.
const drawInterval = 200 * time.Millisecond

// Progress shows how far long work is: in one line of a terminal, otherwise in a line
// now and then. Work that ends before the first shows nothing. It belongs to one goroutine.
type Progress struct {
	w           io.Writer
	what        string
	bytes       bool // not steps
	terminal    bool
	total, done int64
	begun, last time.Time
}

// Terminal reports whether people see at once what is written.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
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
	return &Progress{w: w, what: what, bytes: bytes, terminal: Terminal(w), total: total, begun: now, last: now}
}

// Begin says what the work does from now on.
func (p *Progress) Begin(what string) { p.show(what) }

// Step counts one more of the total; detail says how it is going.
func (p *Progress) Step(detail func() string) {
	p.done++
	p.now(detail)
}

// At notes how many bytes are done, of all that are known of by now.
func (p *Progress) At(done, total int64) {
	p.done, p.total = done, max(done, total)
	p.now(func() string {
		return Bytes(float64(done)/max(1e-3, time.Since(p.begun).Seconds())) + "/s"
	})
}

// now shows the progress, unless it was shown shortly before.
func (p *Progress) now(detail func() string) {
	every := PlainInterval
	if p.terminal {
		every = drawInterval
	}
	if time.Since(p.last) < every {
		return
	}
	p.last = time.Now()
	done, total := Count(p.done), Count(p.total)
	if p.bytes {
		done, total = Bytes(p.done), Bytes(p.total)
	}
	p.show(fmt.Sprintf("%s of %s, %s%s", done, total, detail(), p.left()))
}

// left is how long the rest takes at the pace so far.
func (p *Progress) left() string {
	if p.done <= 0 || p.done >= p.total {
		return ""
	}
	return ", " + Seconds(time.Since(p.begun).Seconds()*float64(p.total-p.done)/float64(p.done)) + " left"
}

// show writes a line, on a terminal in place of the one before.
func (p *Progress) show(text string) {
	form := "%s: %s\n"
	if p.terminal {
		form = "\r%s: %s\x1b[K"
	}
	fmt.Fprintf(p.w, form, p.what, text)
}

// End removes the line of a terminal.
func (p *Progress) End() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
