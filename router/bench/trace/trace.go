package trace

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Request is a line of a trace: milliseconds since its beginning, tokens, and the hashes
// of the blocks of the prompt.
type Request struct {
	Millis float64  `json:"timestamp"`
	Input  int      `json:"input_length"`
	Output int      `json:"output_length"`
	Blocks []uint64 `json:"hash_ids"`
}

// Read reads a trace, limit requests at most; 0 is all.
func Read(name string, limit int) (all []Request, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 16<<20); lines.Scan(); {
		var r Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", name, len(all)+1, err)
		}
		if len(r.Blocks) == 0 {
			continue
		}
		if all = append(all, r); len(all) == limit {
			break
		}
	}
	if len(all) == 0 && lines.Err() == nil {
		return nil, fmt.Errorf("%s has no requests", name)
	}
	return all, lines.Err()
}
