package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/kvstored/kvstored/lab/replay"
)

// flatRequest is a line of a trace as Mooncake's have it.
type flatRequest struct {
	Timestamp int64    `json:"timestamp"`
	Input     int      `json:"input_length"`
	Output    int      `json:"output_length"`
	HashIDs   []uint64 `json:"hash_ids"`
}

// flatten prints the requests of a trace, of either form, in the order of
// their time.
func (f *replayFlags) flatten(w io.Writer) error {
	if f.blockTokens < 1 || f.limit < 0 {
		return usage(errors.New("--block-size must be at least 1, --limit at least 0"))
	}
	form, err := f.form()
	if err != nil {
		return err
	}
	trace, err := replay.Open(f.trace)
	if err != nil {
		return err
	}
	defer trace.Close()
	out := bufio.NewWriter(w)
	line, n := json.NewEncoder(out), 0
	for r, err := range replay.Requests(trace, f.trace, form) {
		if err != nil {
			return err
		}
		if err := line.Encode(flatRequest{r.Millis, r.InputTokens, r.OutputTokens, r.BlockIDs}); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if n++; n == f.limit {
			break
		}
	}
	return out.Flush()
}
