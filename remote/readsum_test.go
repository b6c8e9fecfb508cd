package remote

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/iotest"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/arena"
)

// A body may come in any pieces: all of it has the checksum of one call, and of less
// there is none.
func TestSumOfABody(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	body := make([]byte, 300_001)
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	for name, in := range map[string]func(io.Reader) io.Reader{
		"whole":        func(r io.Reader) io.Reader { return r },
		"halves":       iotest.HalfReader,
		"with its end": iotest.DataErrReader,
		"bytes":        iotest.OneByteReader,
	} {
		for _, size := range []int{1, 1024, 1025, 70_000, len(body)} {
			p := make([]byte, size)
			got, sum, err := readSum(in(bytes.NewReader(body[:size])), p)
			if got != size || err != nil || sum != xxh3.Hash(body[:size]) || !bytes.Equal(p, body[:size]) {
				t.Errorf("%s: %d of %d bytes, checksum %x, %v", name, got, size, sum, err)
			}
			got, sum, err = readSum(in(bytes.NewReader(body[:size-1])), p)
			if got != size-1 || sum != 0 || !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: of %d bytes %d came: checksum %x, %v", name, size, got, sum, err)
			}
		}
	}
}

// Bytes are hashed as they come, and not at the end: what happens to them later does
// not show.
func TestBodyIsHashedAsItComes(t *testing.T) {
	body := make([]byte, 256<<10)
	want := xxh3.Hash(body)
	read := func(sum func(r io.Reader, p []byte) uint64) uint64 {
		p := make([]byte, len(body))
		half := bytes.NewReader(body[:len(body)/2])
		rest := bytes.NewReader(body[len(body)/2:])
		later := readerFunc(func(q []byte) (int, error) { p[0] = 1; return rest.Read(q) })
		return sum(io.MultiReader(half, later), p)
	}
	if read(func(r io.Reader, p []byte) uint64 {
		running := arena.SumOver(p)
		for at := 0; at < len(p); {
			n, _ := r.Read(p[at:])
			running.Arrived(n)
			at += n
		}
		return running.Sum()
	}) != want {
		t.Skip("this processor hashes at the end")
	}
	if read(func(r io.Reader, p []byte) uint64 { _, sum, _ := readSum(r, p); return sum }) != want {
		t.Error("the body was hashed later than it came")
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
