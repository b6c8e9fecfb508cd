package human

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/rs/zerolog"
)

const (
	// mostBytes is what lines may take that wait, and reserveBytes what those of errors may
	// take besides.
	mostBytes    = 256 << 10
	reserveBytes = 64 << 10
	// lastWait is how long the last lines of a program may take.
	lastWait = time.Second
)

// LogQueue has the lines of a log that are not written yet.
type LogQueue struct {
	to      io.Writer
	console *zerolog.ConsoleWriter // nil: lines are JSON
	wake    chan struct{}          // capacity 1
	ended   chan struct{}          // closed when all is written after Close
	lost    atomic.Uint64

	mu struct {
		sync.Mutex
		lines  []byte
		closed bool
	}
}

// SurvivePipes has SIGPIPE end the process no more: a reader that leaves costs lines. A signal
// that is ignored would be so in children too.
func SurvivePipes() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// StartLog returns the log of a program, which ends with Queue.Close. The format is json,
// console, or auto: console for a terminal.
func StartLog(w io.Writer, format string) (zerolog.Logger, *LogQueue) {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	q := &LogQueue{to: w, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	terminal := Terminal(w)
	if format == "console" || format == "auto" && terminal {
		q.console = &zerolog.ConsoleWriter{TimeFormat: time.TimeOnly, NoColor: !terminal}
	}
	log := zerolog.New(q).With().Timestamp().Logger()
	go q.run(&log)
	return log, q
}

// Write implements io.Writer.
func (q *LogQueue) Write(p []byte) (int, error) { return q.WriteLevel(zerolog.NoLevel, p) }

// WriteLevel implements zerolog.LevelWriter. It never blocks, and never fails.
func (q *LogQueue) WriteLevel(l zerolog.Level, p []byte) (int, error) {
	line := p
	if q.console != nil {
		var text bytes.Buffer
		w := *q.console
		w.Out = &text
		_, _ = w.Write(p)
		line = text.Bytes()
	}
	most := mostBytes
	if l >= zerolog.ErrorLevel {
		most += reserveBytes
	}
	q.mu.Lock()
	fits := len(q.mu.lines)+len(line) <= most
	if fits {
		q.mu.lines = append(q.mu.lines, line...)
	}
	q.mu.Unlock()
	if !fits {
		q.lost.Add(1)
	}
	base.Poke(q.wake)
	return len(p), nil
}

// Lost is how many lines were lost.
func (q *LogQueue) Lost() uint64 { return q.lost.Load() }

// Close ends the log once its lines are written, or after a second.
func (q *LogQueue) Close() {
	q.mu.Lock()
	q.mu.closed = true
	q.mu.Unlock()
	base.Poke(q.wake)
	within(q.ended)
}

func within(done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(lastWait):
	}
}

// LastWords writes what a program says before it ends, for a second at most.
func LastWords(w io.Writer, text []byte) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.Write(text) // there is no other way to say it
	}()
	within(done)
}

// take is what there is to write, in place of which empty is filled from now on; false
// after the last.
func (q *LogQueue) take(empty []byte) (lines []byte, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, q.mu.lines = q.mu.lines, empty[:0]
	return lines, len(lines) > 0 || !q.mu.closed
}

// run writes until all is written after Close.
func (q *LogQueue) run(log *zerolog.Logger) {
	defer close(q.ended)
	told := uint64(0)
	for lines, more := q.take(nil); more; lines, more = q.take(lines) {
		if len(lines) == 0 {
			<-q.wake
			continue
		}
		n, err := q.to.Write(lines)
		if err != nil {
			q.lost.Add(uint64(bytes.Count(lines[n:], []byte("\n"))))
			continue
		}
		if lost := q.lost.Load(); lost > told {
			log.Error().Uint64("lines", lost-told).Uint64("since_start", lost).Msgf("lost %d lines of the log, which nothing took", lost-told)
			told = lost
		}
	}
}
