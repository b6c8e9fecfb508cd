package resp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

// Any input is read the same way in one piece and byte by byte, never more of it
// than there is, and costs no memory that was only announced.
func FuzzReader(f *testing.F) {
	for _, s := range []string{
		"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n", "PING\r\n*1\r\n$4\r\nPING\r\n", "*2\r\n$3\r\nGET\r\n$-1\r\n",
		"*1048577\r\n", "*1\r\n$536870912\r\nx", "*-1\r\n*0\r\n\r\n ping \r\nset a b\r\n", "*1\r\n$2\r\nabc\r\n", "\n\n*\n$\n",
		"\n\x00\n", "x\x00", "*1\r\n$\x00",
		"*4\r\n$3\r\nDEL\r\n$1\r\na\r\n$1\r\nb\r\n$003\r\nabc\r\n", "*4\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n$0\r\n\r\n",
		"*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\nab\r\n", "*4\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\rxa\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, err := readAll(bytes.NewReader(in), len(in))
		pieces, perr := readAll(iotest.OneByteReader(bytes.NewReader(in)), len(in))
		if !bytes.Equal(whole, pieces) || err.Error() != perr.Error() {
			t.Errorf("at once %q, %v; byte by byte %q, %v", whole, err, pieces, perr)
		}
		var bad protocolError
		if !errors.As(err, &bad) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
}

// readAll returns the arguments of all commands, separated, and why it ended.
func readAll(src io.Reader, size int) (all []byte, err error) {
	r := newReader(src)
	for {
		n, err := r.command()
		if err != nil {
			return all, err
		}
		if n == typedPing {
			all = append(all, "PING|"...)
		}
		for i := range n {
			size, err := r.bulk()
			if err != nil {
				return all, err
			}
			switch {
			case i%3 == 1 && size < 1<<16:
				p := make([]byte, size)
				told := 0
				if err = r.full(p, func(n int) { told += n }); err == nil {
					if told != size {
						panic("a value arrived, but was not told of whole")
					}
					all, err = append(all, p...), r.end()
				}
			case i%3 == 2:
				err = r.discard(size)
			default:
				all, err = r.append(all, size)
			}
			if err != nil {
				return all, err
			}
			all = append(all, '|')
		}
	}
}
