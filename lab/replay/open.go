package replay

import (
	"bufio"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// others are how files begin that are not read, and what to do with them.
var others = map[string]string{
	"\xfd7zX": "packed by xz: unpack it first", "PK\x03\x04": "a zip archive: take the trace out of it first",
	"\xff\xfe": "UTF-16: make it UTF-8 first", "\xfe\xff": "UTF-16: make it UTF-8 first",
}

// Open opens a trace, and unpacks it while it is read if it begins as gzip, Zstandard or
// bzip2 does, whatever its name. The caller closes it.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	in := bufio.NewReader(f)
	first, err := in.Peek(4) // of a shorter file what there is
	if err != nil && err != io.EOF {
		return nil, errors.Join(fmt.Errorf("trace: %w", err), f.Close())
	}
	for begins, what := range others {
		if strings.HasPrefix(string(first), begins) {
			return nil, errors.Join(fmt.Errorf("trace: %s is %s", path, what), f.Close())
		}
	}
	switch {
	case strings.HasPrefix(string(first), "BZh"):
		return &packed{bzip2.NewReader(in), func() error { return nil }, f}, nil
	case len(first) > 1 && string(first[:2]) == "\x1f\x8b":
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace: %s: %w", path, err), f.Close())
		}
		return &packed{z, z.Close, f}, nil
	case string(first) == "\x28\xb5\x2f\xfd":
		z, err := zstd.NewReader(in)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace: %s: %w", path, err), f.Close())
		}
		return &packed{z, func() error { z.Close(); return nil }, f}, nil
	}
	return &packed{in, func() error { return nil }, f}, nil
}

// packed closes what unpacks, then the file.
type packed struct {
	io.Reader
	end  func() error
	file *os.File
}

func (p *packed) Close() error { return errors.Join(p.end(), p.file.Close()) }
