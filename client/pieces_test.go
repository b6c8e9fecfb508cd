package client

import (
	"context"
	"errors"
	"testing"
)

// Store refuses bad options before it sends a request.
func TestStoreRefusesWhatItCannotSay(t *testing.T) {
	c := &Client{}
	c.hello.MaxPayload = 64
	for name, tt := range map[string]struct {
		o    ReserveOptions
		want Code
	}{
		"no size":        {ReserveOptions{Count: 1}, ErrTooLarge},
		"too large":      {ReserveOptions{Count: 1, Size: 65}, ErrTooLarge},
		"negative first": {ReserveOptions{First: -1, Count: 1, Size: 1}, ErrBadRequest},
		"negative count": {ReserveOptions{Count: -1, Size: 1}, ErrBadRequest},
		"no count":       {ReserveOptions{Size: 1}, ErrBadRequest},
	} {
		out, err := c.Store(context.Background(), Tokens(nil), tt.o, nil, nil)
		if !errors.Is(err, tt.want) || len(out) != 0 {
			t.Errorf("%s: %d results, %v; want %v", name, len(out), err, tt.want)
		}
	}
}

// Without shared memory a part of a prompt is as long as the memory lent for it.
func TestLendable(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		sizes   []uint32
		i, n    int
		want    int
		because string
	}{
		{[]uint32{mib}, 0, 1000, 64, "a piece is full"},
		{[]uint32{mib}, 990, 1000, 10, "the prompt ends"},
		{[]uint32{100 * mib}, 0, 3, 1, "one chunk is more than a piece"},
		{[]uint32{mib, 63 * mib, mib}, 0, 3, 2, "the sizes differ"},
		{[]uint32{mib, 63 * mib, mib}, 2, 3, 1, "the last is left"},
	} {
		if got := chunksOf(pieceBytes, tt.sizes, tt.i, tt.n); got != tt.want {
			t.Errorf("%s: %d chunks, want %d", tt.because, got, tt.want)
		}
	}
}
