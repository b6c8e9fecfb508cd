package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/kvstored/kvstored/internal/human"
)

// payloadSource is a file that a payload is read from, in any order.
type payloadSource struct {
	io.ReaderAt
	size int64
	file *os.File // to be closed; nil for standard input
}

// Close closes the file that openPayload opened or made.
func (s *payloadSource) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// openPayload opens the file that args names, or standard input, from where it
// stands now. Taken says that the tokens come from there already.
func openPayload(stdin io.Reader, args []string, taken bool) (*payloadSource, error) {
	if len(args) == 0 || args[0] == "-" {
		if taken {
			return nil, usage(errors.New("standard input is the tokens already; name a file for the payload"))
		}
		if f, ok := stdin.(*os.File); ok {
			if s, err := regular(f); s != nil || err != nil {
				return s, err
			}
		}
		return spool(stdin)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, err
	}
	s, err := regular(f)
	if s == nil && err == nil {
		defer f.Close()
		return spool(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	s.file = f
	return s, nil
}

// regular is a file from where it stands to its end; nil if it is none that can
// be read in any order.
func regular(f *os.File) (*payloadSource, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a folder; name a file", f.Name())
	}
	if !info.Mode().IsRegular() {
		return nil, nil
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	size := max(0, info.Size()-at)
	return &payloadSource{ReaderAt: io.NewSectionReader(f, at, size), size: size}, nil
}

// spool copies r into a temporary file that has no name any more. A payload is
// cut by its length, and chunks that are there already are compared first, so that it
// is read twice.
func spool(r io.Reader) (*payloadSource, error) {
	f, err := os.CreateTemp("", "kvstored-put-")
	if err != nil {
		return nil, fmt.Errorf("temporary file for the payload: %w; set TMPDIR to a folder with room, or name a file", err)
	}
	s := &payloadSource{ReaderAt: f, file: f}
	if err = os.Remove(f.Name()); err == nil {
		s.size, err = io.Copy(f, r)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy the payload to %s: %w; set TMPDIR to a folder with room, or name a file", f.Name(), err), f.Close())
	}
	return s, nil
}

// parts are what a file is cut into, to be stored as the chunks of a prompt:
// n of each bytes, the last of the rest.
type parts struct {
	from  io.ReaderAt
	n     int
	each  int64
	total int64
	buf   []byte // to compare with
}

// cut divides the first size bytes of from into n payloads, all of the same
// length but the last.
func cut(from io.ReaderAt, size int64, n int) (parts, error) {
	if size < int64(n) {
		return parts{}, fmt.Errorf("%s for %s: a payload has at least one byte", human.Plural(int(size), "byte"), human.Plural(n, "chunk"))
	}
	each := (size + int64(n) - 1) / int64(n)
	if int64(n-1)*each >= size { // the last would have nothing
		each = size / int64(n)
	}
	p := parts{from: from, n: n, each: each, total: size, buf: make([]byte, 64<<10)}
	if largest := max(each, p.size(n-1)); largest > math.MaxUint32 {
		return parts{}, fmt.Errorf("%d bytes for each of %s is more than a payload can have; use a prompt of more tokens, or a smaller --chunk-tokens", largest, human.Plural(n, "chunk"))
	}
	return p, nil
}

// size is the bytes of payload i.
func (p parts) size(i int) int64 {
	if i < p.n-1 {
		return p.each
	}
	return p.total - int64(p.n-1)*p.each
}

func (p parts) sizes() []uint32 {
	out := make([]uint32, p.n)
	for i := range out {
		out[i] = uint32(p.size(i))
	}
	return out
}

// read fills dst, as long as payload i, with it.
func (p parts) read(i int, dst []byte) error {
	if n, err := p.from.ReadAt(dst, int64(i)*p.each); n < len(dst) { // perhaps the file was made shorter
		return fmt.Errorf("read payload %d: %w", i, err)
	}
	return nil
}

// equal reports whether payload i is b.
func (p parts) equal(i int, b []byte) (bool, error) {
	if int64(len(b)) != p.size(i) {
		return false, nil
	}
	for off := int64(i) * p.each; len(b) > 0; {
		part := p.buf[:min(len(b), len(p.buf))]
		if n, err := p.from.ReadAt(part, off); n < len(part) {
			return false, fmt.Errorf("read payload %d: %w", i, err)
		}
		if !bytes.Equal(part, b[:len(part)]) {
			return false, nil
		}
		b, off = b[len(part):], off+int64(len(part))
	}
	return true, nil
}
