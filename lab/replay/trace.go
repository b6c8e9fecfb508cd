package replay

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrTrace is wrapped by every error about the content of a trace.
var ErrTrace = errors.New("invalid trace")

// maxLineBytes bounds one line of a trace: a prompt of 2 million tokens in
// blocks of 16 is 131,072 ids of up to 20 digits.
const maxLineBytes = 4 << 20

// Request is one request of a trace: a prompt, as the ids of its blocks.
type Request struct {
	Line         int
	Session      int   // number of the session or sub-agent that made it, from 1 on; 0 where the trace does not say
	Millis       int64 // since the start of the trace
	Untimed      bool  // the line has no time; Millis is that of the line before
	InputTokens  int
	OutputTokens int // 0 where NoOutput
	NoOutput     bool
	// BlockIDs has one id a block, from the start of the prompt. Equal ids
	// mean equal blocks and equal blocks before them. The last block may be
	// partial.
	BlockIDs []uint64

	due    time.Time // when it is to start; zero = whenever a client is free
	number int       // of the request in the trace, from 0 on
}

// Form says what the numbers of a trace mean.
type Form struct {
	BlockTokens int
	Unit        time.Duration // of "timestamp" and "delay"; 0 = milliseconds
}

// millis is a time of the trace.
func (f Form) millis(t float64) (int64, error) {
	ms := t * float64(cmp.Or(f.Unit, time.Millisecond)) / float64(time.Millisecond)
	switch {
	case !(ms >= 0):
		return 0, fmt.Errorf("a time of %v must not be negative", t)
	case ms > maxMillis:
		return 0, fmt.Errorf("a time of %v is too large; is the unit right (--time-unit)?", t)
	}
	return int64(ms), nil
}

// maxMillis is as long as a time.Duration can be, 285 years: times since 1970 fit.
const maxMillis = 9e12

// Requests reads a trace: one JSON object a line, as
//
//	{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}
//
// with one id for each block of the form's tokens, and one or none for a
// partial block at the end. "session_id" names the session of a request, and "delay" in
// place of "timestamp" is the time since its last one. A line without either came with the
// one before it; the output may be left out. Or a trace has a whole session a line, as
//
//	{"block_size": 64, "tool_tokens": 512, "system_tokens": 256, "start": 9.5, "requests": [
//	  {"t": 0, "in": 1290, "out": 169, "model": "m", "hash_ids": [1, 2, 3]},
//	  {"t": 4.2, "type": "subagent", "tool_tokens": 0, "system_tokens": 64, "requests": [...]}]}
//
// (without the line breaks), where ids are the session's own and stand for
// block_size tokens. These are put together to blocks of the form's, named by
// their last id; sessions that have equal tools, system prompt and model have
// the whole blocks of these in common. Requests of all sessions then come in
// the order of their times: start is when a session began, in seconds, and t
// counts from there or from the sub-agent's own t. A trace of sessions is read
// whole before its first request.
//
// Blank lines, a byte order mark and other members are passed over. Requests yields requests in their order,
// and at the first line that is not one an error that names the line, then
// ends. The error wraps [ErrTrace] unless reading itself failed. name stands
// for the trace in errors.
func Requests(r io.Reader, name string, form Form) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for req, err := range Lines(r, name, form) {
			if !yield(req, err) || err != nil {
				return
			}
		}
	}
}

// Lines is like [Requests], but goes on after a line that is not a request,
// and ends where reading fails.
func Lines(r io.Reader, name string, form Form) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		l := lines{in: bufio.NewReaderSize(r, 64<<10), name: name, most: maxSessionBytes}
		first, err := l.next()
		switch {
		case err == nil && isSession(first):
			l.sessions(first, form.BlockTokens, yield)
		default:
			l.most = maxLineBytes
			l.requests(first, err, form, yield)
		}
	}
}

// lines is a trace on its way in.
type lines struct {
	in     *bufio.Reader
	name   string
	most   int // bytes of a line
	number int // of the last line read
	text   []byte
}

// byteOrderMark is that of UTF-8.
var byteOrderMark = []byte("\uFEFF")

// next returns a line that is not blank, valid until the one after it. io.EOF is the end.
func (l *lines) next() (line []byte, err error) {
	for {
		l.number++
		if l.text, err = readLine(l.in, l.text[:0], l.most); err != nil && err != io.EOF {
			err = fmt.Errorf("read trace: %s:%d: %w", l.name, l.number, err)
		}
		if line = l.text; l.number == 1 {
			line = bytes.TrimPrefix(line, byteOrderMark)
		}
		if err != nil || len(line) > l.most || len(bytes.TrimSpace(line)) > 0 {
			return line, err
		}
	}
}

// wrong names the line that is not what it should be.
func (l *lines) wrong(err error) error {
	return fmt.Errorf("%w: %s:%d: %w", ErrTrace, l.name, l.number, err)
}

// requests yields one request a line.
func (l *lines) requests(text []byte, err error, form Form, yield func(Request, error) bool) {
	p := parser{Form: form, sessions: make(map[string]*talk)}
	for ; err == nil; text, err = l.next() {
		req, err := p.parse(text)
		if err != nil {
			req, err = Request{}, l.wrong(err)
		}
		req.Line = l.number
		if !yield(req, err) {
			return
		}
	}
	if err != io.EOF {
		yield(Request{}, err)
	}
}

// sessions yields the lines that are wrong, then all requests by their times.
func (l *lines) sessions(text []byte, blockTokens int, yield func(Request, error) bool) {
	s, err := newSessions(blockTokens), error(nil)
	var all []Request
	for ; err == nil; text, err = l.next() {
		some, err := s.parse(text)
		if err != nil {
			if !yield(Request{Line: l.number}, l.wrong(err)) {
				return
			}
			continue
		}
		for i := range some {
			some[i].Line = l.number
		}
		all = append(all, some...)
	}
	if err != io.EOF {
		yield(Request{}, err)
		return
	}
	slices.SortStableFunc(all, func(a, b Request) int { return cmp.Compare(a.Millis, b.Millis) })
	for _, req := range all {
		if !yield(req, nil) {
			return
		}
	}
}

// readLine appends a line to text, or as much of it as shows that it is too
// long. io.EOF is the end of the trace.
func readLine(in *bufio.Reader, text []byte, most int) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text) <= most {
			text = append(text, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case err == io.EOF && len(text) > 0:
			return text, nil
		default:
			return text, err
		}
	}
}

// wireRequest tells absent members from zeros.
type wireRequest struct {
	Requests  any             `json:"requests"`  // of a session, which is no request
	Timestamp *float64        `json:"timestamp"` // some traces have fractions of a millisecond
	Delay     *float64        `json:"delay"`     // since the last request of the session
	Session   json.RawMessage `json:"session_id"`
	Input     *int            `json:"input_length"`
	Output    *int            `json:"output_length"`
	IDs       *[]uint64       `json:"hash_ids"`
}

// parser reads the lines of a trace of requests.
type parser struct {
	Form
	last     int64 // millis of the request before
	sessions map[string]*talk
}

// talk is a session that requests name.
type talk struct {
	number int
	last   int64 // millis of its last request
}

func (p *parser) parse(line []byte) (Request, error) {
	if len(line) > maxLineBytes {
		return Request{}, fmt.Errorf("the line has more than %d bytes", maxLineBytes)
	}
	var w wireRequest
	if err := json.Unmarshal(line, &w); err != nil {
		return Request{}, malformed(err)
	}
	switch {
	case w.Requests != nil:
		return Request{}, errors.New("a session, but the trace began with a request")
	case w.Input == nil:
		return Request{}, errors.New(`"input_length" is missing`)
	case w.IDs == nil:
		return Request{}, errors.New(`"hash_ids" is missing`)
	}
	req := Request{InputTokens: *w.Input, NoOutput: w.Output == nil, BlockIDs: *w.IDs}
	if w.Output != nil {
		req.OutputTokens = *w.Output
	}
	if err := req.check(p.BlockTokens); err != nil {
		return Request{}, err
	}
	return req, p.place(&req, &w)
}

// place says when a request came, and of which session it is.
func (p *parser) place(req *Request, w *wireRequest) (err error) {
	var of *talk
	if id := string(w.Session); id != "" && id != "null" {
		if of = p.sessions[id]; of == nil {
			of = &talk{number: len(p.sessions) + 1}
			p.sessions[id] = of
		}
		req.Session = of.number
	}
	switch {
	case w.Timestamp != nil:
		req.Millis, err = p.millis(*w.Timestamp)
	case w.Delay != nil && of != nil:
		if req.Millis, err = p.millis(*w.Delay); err == nil {
			req.Millis = min(req.Millis+of.last, maxMillis)
		}
	default:
		req.Millis, req.Untimed = p.last, true
	}
	p.last = req.Millis
	if of != nil {
		of.last = req.Millis
	}
	return err
}

// malformed names the fault of a line without the types it is read into.
func malformed(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case !errors.As(err, &kind):
		return fmt.Errorf("not a JSON object: %w", err)
	case kind.Field == "":
		return fmt.Errorf("want a JSON object a line, not a %s", kind.Value)
	}
	number, isNumber := strings.CutPrefix(kind.Value, "number ")
	if x, err := strconv.ParseFloat(number, 64); isNumber && (err != nil || math.Abs(x) >= 1<<53) {
		return fmt.Errorf("%q: %s is too large", kind.Field, number)
	}
	return fmt.Errorf("%q: a %s does not fit there", kind.Field, kind.Value)
}

func (r *Request) check(blockTokens int) error {
	if r.InputTokens < 1 || r.InputTokens > math.MaxUint32 {
		return fmt.Errorf("input_length %d: want 1 to %d", r.InputTokens, uint32(math.MaxUint32))
	}
	if r.OutputTokens < 0 {
		return errors.New("output_length must not be negative")
	}
	whole := r.InputTokens / blockTokens
	if all := (r.InputTokens + blockTokens - 1) / blockTokens; len(r.BlockIDs) != all && len(r.BlockIDs) != whole {
		return fmt.Errorf("%d hash_ids, but input_length %d is %d whole blocks of %d tokens, %d with a partial one; is the block size right?",
			len(r.BlockIDs), r.InputTokens, whole, blockTokens, all)
	}
	for _, id := range r.BlockIDs {
		if id == math.MaxUint64 {
			return fmt.Errorf("hash_id %d: use a smaller one", id)
		}
	}
	return nil
}

// Summary is what a trace holds.
type Summary struct {
	Requests int
	Tokens   int64 // of prompts
	Blocks   int64
	Untimed  int           // requests without a time
	Late     int           // requests that came before one of an earlier line
	Span     time.Duration // from the first to the last
}

// Summarize reads a trace to its end, or its first limit requests (0 = all).
// Playing a trace takes minutes; this finds a bad line within a second.
func Summarize(r io.Reader, name string, form Form, limit int) (Summary, error) {
	var s Summary
	var span Span
	for req, err := range Requests(r, name, form) {
		if err != nil {
			return s, err
		}
		s.Requests++
		s.Tokens += int64(req.InputTokens)
		s.Blocks += int64(len(req.BlockIDs))
		if req.Untimed {
			s.Untimed++
		}
		span.Add(req.Millis)
		if s.Late, s.Span = span.Late, span.Lasts(); s.Requests == limit {
			break
		}
	}
	return s, nil
}

// Span is the times of requests, in the order of their lines.
type Span struct {
	Late        int // requests that came before one of an earlier line
	first, last int64
	any         bool
}

// Add takes in one time.
func (s *Span) Add(millis int64) {
	switch {
	case !s.any:
		s.first, s.last, s.any = millis, millis, true
	case millis < s.last:
		s.Late++
	}
	s.first, s.last = min(s.first, millis), max(s.last, millis)
}

// Lasts is the time between the first and the last.
func (s *Span) Lasts() time.Duration { return time.Duration(s.last-s.first) * time.Millisecond }
