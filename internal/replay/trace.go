package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"time"
)

// ErrTrace is wrapped by every error about the content of a trace.
var ErrTrace = errors.New("invalid trace")

// maxLineBytes bounds one line of a trace: a prompt of 2 million tokens in
// blocks of 16 is 131,072 ids of up to 20 digits.
const maxLineBytes = 4 << 20

// Request is one line of a trace: a prompt, as the ids of its blocks.
type Request struct {
	Line         int
	Millis       int64 // since the start of the trace
	InputTokens  int
	OutputTokens int
	// BlockIDs has one id a block, from the start of the prompt. Equal ids
	// mean equal blocks and equal blocks before them.
	BlockIDs []uint64

	due time.Time // when it is to start; zero = whenever a client is free
}

// Requests reads a trace: one JSON object a line, as
//
//	{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [0, 1]}
//
// with one id for each block of blockTokens tokens, the last of which may be
// partial. Other members are passed over. It yields requests in their order,
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
		in := bufio.NewReaderSize(r, 64<<10)
		var text []byte
		for line := 1; ; line++ {
			var err error
			if text, err = readLine(in, text[:0]); err == io.EOF {
				return
			} else if err != nil {
				yield(Request{}, fmt.Errorf("read trace: %s:%d: %w", name, line, err))
				return
			}
			req, err := parse(text, blockTokens)
			if err != nil {
				req, err = Request{}, fmt.Errorf("%w: %s:%d: %w", ErrTrace, name, line, err)
			}
			req.Line = line
			if !yield(req, err) {
				return
			}
		}
	}
}

// readLine appends a line to text, or as much of it as shows that it is too
// long. io.EOF is the end of the trace.
func readLine(in *bufio.Reader, text []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if len(text) <= maxLineBytes {
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
	if want := (r.InputTokens + blockTokens - 1) / blockTokens; len(r.BlockIDs) != want {
		return fmt.Errorf("%d hash_ids, but input_length %d is %d blocks of %d tokens; is the block size right?",
			len(r.BlockIDs), r.InputTokens, want, blockTokens)
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
