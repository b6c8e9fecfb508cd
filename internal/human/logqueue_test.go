package human

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is where lines go. It blocks, or fails, as the test says.
type pipe struct {
	mu   sync.Mutex
	text bytes.Buffer
	fail error
	full chan struct{} // nil: it takes all
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	full := p.full
	p.mu.Unlock()
	if full != nil {
		<-full
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return 0, p.fail
	}
	return p.text.Write(b)
}

func (p *pipe) set(fail error, full chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail, p.full = fail, full
}

func (p *pipe) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// A pipe that is not read takes no time of its writers, and bounded memory. Errors come
// through behind lines of lower levels, and the lost ones are counted and told.
func TestPipeThatIsNotRead(t *testing.T) {
	for _, format := range []string{"json", "console"} {
		synctest.Test(t, func(t *testing.T) {
			to, free := new(pipe), make(chan struct{})
			to.set(nil, free)
			log, q := StartLog(to, format)
			log.Info().Msg("the first is under way")
			synctest.Wait()
			begun := time.Now()
			const lines = 20_000
			for i := range lines {
				log.Debug().Int("i", i).Msg("a request")
			}
			log.Error().Msg("the disk is full")
			if took := time.Since(begun); took != 0 {
				t.Errorf("calls to the log took %v", took)
			}
			if n := len(q.mu.lines); n > mostBytes+reserveBytes {
				t.Errorf("%d bytes wait", n)
			}
			lost := q.Lost()
			if lost == 0 || lost >= lines {
				t.Errorf("%d of %d lines are lost", lost, lines)
			}
			to.set(nil, nil)
			close(free)
			synctest.Wait()
			text := to.String()
			for _, want := range []string{"the first is under way", "the disk is full", fmt.Sprintf("lost %d lines", lost)} {
				if !strings.Contains(text, want) {
					t.Errorf("the log lacks %q", want)
				}
			}
			if n := strings.Count(text, "a request"); n != lines-int(lost) {
				t.Errorf("%d lines came through, %d are lost, of %d", n, lost, lines)
			}
			q.Close()
		})
	}
}

// Errors of writing cost their lines and nothing else.
func TestErrorsOfWriting(t *testing.T) {
	for _, no := range []error{syscall.EPIPE, syscall.EIO, syscall.ENOSPC, syscall.EAGAIN} {
		synctest.Test(t, func(t *testing.T) {
			to := new(pipe)
			log, q := StartLog(to, "json")
			to.set(no, nil)
			for range 3 {
				log.Info().Msg("nothing takes it")
				synctest.Wait()
			}
			to.set(nil, nil)
			log.Info().Msg("again")
			synctest.Wait()
			if text := to.String(); q.Lost() != 3 || !strings.Contains(text, "again") || !strings.Contains(text, "lost 3 lines") || strings.Contains(text, "nothing takes it") {
				t.Errorf("%v: %d lines are lost: %s", no, q.Lost(), text)
			}
			q.Close()
		})
	}
}

// The last lines are written before the program ends, where that is possible within a second.
func TestLastLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := new(pipe)
		log, q := StartLog(to, "json")
		log.Info().Msg("stopped")
		q.Close()
		LastWords(to, []byte("the reason\n"))
		if text := to.String(); !strings.Contains(text, "stopped") || !strings.HasSuffix(text, "the reason\n") {
			t.Errorf("the log ends with %q", text)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		to, free := new(pipe), make(chan struct{})
		to.set(errors.New("closed"), free)
		log, q := StartLog(to, "json")
		log.Info().Msg("stopped")
		begun := time.Now()
		q.Close()
		LastWords(to, []byte("the reason\n"))
		if took := time.Since(begun); took != 2*lastWait {
			t.Errorf("the end took %v", took)
		}
		close(free)
		synctest.Wait()
	})
}
