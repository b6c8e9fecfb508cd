package replay

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
)

// Open opens a trace, and unpacks it while it is read if its name ends in .gz
// or .zst. The caller closes it.
func Open(path string) (io.ReadCloser, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	switch filepath.Ext(path) {
	case ".gz":
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace: %s: %w", path, err), f.Close())
		}
		return &packed{z, z.Close, f}, nil
	case ".zst":
		z, err := zstd.NewReader(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("trace: %s: %w", path, err), f.Close())
		}
		return &packed{z, func() error { z.Close(); return nil }, f}, nil
	}
	return f, nil
}

// packed closes what unpacks, then the file.
type packed struct {
	io.Reader
	end  func() error
	file *os.File
}

func (p *packed) Close() error { return errors.Join(p.end(), p.file.Close()) }
