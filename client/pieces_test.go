package client

import (
	"context"
	"errors"
	"testing"
)

// What is wrong in a call is said before anything is asked for.
func TestStoreRefusesWhatItCannotSay(t *testing.T) {
	c := &Client{}
	c.hello.MaxPayloadBytes = 64
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
