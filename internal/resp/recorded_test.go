package resp_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// step is one event of a recording: a connection is opened, or bytes go one way.
type step struct {
	conn int
	what string // "unix", "tcp", ">" or "<"
	b    string
}

// readRecording reads lines such as `1 unix`, a connection, `1> "PING\r\n"`, a request,
// and `1< "$512\r\n" 512*"x" "\r\n"`, a reply. Lines that follow each other in the same
// direction are one step.
func readRecording(t *testing.T, path string) (steps []step) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line[0] == '#' {
			continue
		}
		s, err := readStep(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %q: %v", path, line, err)
		}
		if last := len(steps) - 1; last >= 0 && s.b != "" && steps[last].conn == s.conn && steps[last].what == s.what {
			steps[last].b += s.b
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

func readStep(line string) (s step, err error) {
	head, rest, _ := strings.Cut(line, " ")
	if n := strings.TrimRight(head, "<>"); n != head {
		s.what, head = head[len(n):], n
	} else {
		s.what, rest = rest, ""
	}
	if s.conn, err = strconv.Atoi(head); err != nil {
		return s, err
	}
	for rest != "" {
		times := 1
		if before, after, ok := strings.Cut(rest, "*"); ok && rest[0] != '"' {
			if times, err = strconv.Atoi(before); err != nil {
				return s, err
			}
			rest = after
		}
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			return s, err
		}
		part, err := strconv.Unquote(quoted)
		if err != nil {
			return s, err
		}
		s.b += strings.Repeat(part, times)
		rest = strings.TrimSpace(rest[len(quoted):])
	}
	return s, nil
}

// TestRecorded replays the sessions of clients, and one with a redis-server. The replies
// are those of the recording to the byte, and no push frame comes.
func TestRecorded(t *testing.T) {
	files, err := filepath.Glob("testdata/clients/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d recordings, %v", len(files), err)
	}
	for _, file := range files {
		steps := readRecording(t, file)
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow %t", filepath.Base(file), slow), func(t *testing.T) {
				inBubble(t, func(t *testing.T, p *pipes) { p.replay(steps, slow) })
			})
		}
	}
}

func (p *pipes) replay(steps []step, slow bool) {
	for _, s := range steps {
		switch {
		case s.conn > len(p.conns)+1 || s.conn <= len(p.conns) && s.b == "":
			p.t.Fatalf("connection %d is not the next", s.conn)
		case s.b == "":
			p.dial(s.what).slow = slow
		case s.what == ">":
			p.conns[s.conn-1].send(s.b)
		default:
			p.conns[s.conn-1].expect(s.b)
		}
	}
	for _, c := range p.conns {
		c.silent()
	}
}
