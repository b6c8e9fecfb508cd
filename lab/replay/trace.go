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
	InputTokens  int
	OutputTokens int
	// BlockIDs has one id a block, from the start of the prompt. Equal ids
	// mean equal blocks and equal blocks before them. The last block may be
	// partial.
	BlockIDs []uint64

	due    time.Time // when it is to start; zero = whenever a client is free
	number int       // of the request in the trace, from 0 on
}

// Requests reads a trace: one JSON object a line, as
//
//	{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}
//
// with one id for each block of blockTokens tokens, and one or none for a
// partial block at the end, or a whole session a line, as
//
//	{"block_size": 64, "tool_tokens": 512, "system_tokens": 256, "start": 9.5, "requests": [
//	  {"t": 0, "in": 1290, "out": 169, "model": "m", "hash_ids": [1, 2, 3]},
//	  {"t": 4.2, "type": "subagent", "tool_tokens": 0, "system_tokens": 64, "requests": [...]}]}
//
// (without the line breaks), where ids are the session's own and stand for
// block_size tokens. These are put together to blocks of blockTokens, named by
// their last id; sessions that have equal tools, system prompt and model have
// the whole blocks of these in common. Requests of all sessions then come in
// the order of their times: start is when a session began, in seconds, and t
// counts from there or from the sub-agent's own t. A trace of sessions is read
// whole before its first request.
//
// Other members are passed over. Requests yields requests in their order,
// and at the first line that is not one an error that names the line, then
// ends. The error wraps [ErrTrace] unless reading itself failed. name stands
// for the trace in errors.
func Requests(r io.Reader, name string, blockTokens int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		for req, err := range Lines(r, name, blockTokens) {
			if !yield(req, err) || err != nil {
				return
			}
		}
	}
}

// Lines is like [Requests], but goes on after a line that is not a request,
// and ends where reading fails.
func Lines(r io.Reader, name string, blockTokens int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		l := lines{in: bufio.NewReaderSize(r, 64<<10), name: name, most: maxSessionBytes}
		first, err := l.next()
		switch {
		case err == nil && isSession(first):
			l.sessions(first, blockTokens, yield)
		default:
			l.most = maxLineBytes
			l.requests(first, err, blockTokens, yield)
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

// next returns a line, valid until the one after it. io.EOF is the end.
func (l *lines) next() (line []byte, err error) {
	l.number++
	if l.text, err = readLine(l.in, l.text[:0], l.most); err != nil && err != io.EOF {
		err = fmt.Errorf("read trace: %s:%d: %w", l.name, l.number, err)
	}
	return l.text, err
}

// wrong names the line that is not what it should be.
func (l *lines) wrong(err error) error {
	return fmt.Errorf("%w: %s:%d: %w", ErrTrace, l.name, l.number, err)
}

// requests yields one request a line.
func (l *lines) requests(text []byte, err error, blockTokens int, yield func(Request, error) bool) {
	for ; err == nil; text, err = l.next() {
		req, err := parse(text, blockTokens)
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
	Requests  any       `json:"requests"`  // of a session, which is no request
	Timestamp *float64  `json:"timestamp"` // some traces have fractions of a millisecond
	Input     *int      `json:"input_length"`
	Output    *int      `json:"output_length"`
	IDs       *[]uint64 `json:"hash_ids"`
}

func parse(line []byte, blockTokens int) (Request, error) {
	switch {
	case len(bytes.TrimSpace(line)) == 0:
		return Request{}, errors.New("the line is empty")
	case len(line) > maxLineBytes:
		return Request{}, fmt.Errorf("the line has more than %d bytes", maxLineBytes)
	}
	var w wireRequest
	if err := json.Unmarshal(line, &w); err != nil {
		return Request{}, malformed(err)
	}
	switch {
	case w.Requests != nil:
		return Request{}, errors.New("a session, but the trace began with a request")
	case w.Timestamp == nil:
		return Request{}, errors.New(`"timestamp" is missing`)
	case w.Input == nil:
		return Request{}, errors.New(`"input_length" is missing`)
	case w.Output == nil:
		return Request{}, errors.New(`"output_length" is missing`)
	case w.IDs == nil:
		return Request{}, errors.New(`"hash_ids" is missing`)
	}
	req := Request{Millis: int64(*w.Timestamp), InputTokens: *w.Input, OutputTokens: *w.Output, BlockIDs: *w.IDs}
	return req, req.check(blockTokens)
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
	return fmt.Errorf("%q: a %s does not fit there", kind.Field, kind.Value)
}

func (r *Request) check(blockTokens int) error {
	if r.InputTokens < 1 || r.InputTokens > math.MaxUint32 {
		return fmt.Errorf("input_length %d: want 1 to %d", r.InputTokens, uint32(math.MaxUint32))
	}
	if r.Millis < 0 || r.OutputTokens < 0 {
		return errors.New("timestamp and output_length must not be negative")
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
}

// Summarize reads a trace to its end, or its first limit requests (0 = all).
// Playing a trace takes minutes; this finds a bad line within a second.
func Summarize(r io.Reader, name string, blockTokens, limit int) (Summary, error) {
	var s Summary
	for req, err := range Requests(r, name, blockTokens) {
		if err != nil {
			return s, err
		}
		s.Requests++
		s.Tokens += int64(req.InputTokens)
		s.Blocks += int64(len(req.BlockIDs))
		if s.Requests == limit {
			break
		}
	}
	return s, nil
}
