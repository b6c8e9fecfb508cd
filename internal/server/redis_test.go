package server_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// A Redis client hears at once that it has the wrong socket, in words that it
// understands, however little it sends.
func TestRedisClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{Options: server.Options{Limits: server.Limits{HelloTimeout: patience}}})
		for _, first := range []string{
			"*1\r\n$4\r\nPING\r\n", "*1\r\n", "*12\r", "*0\r\n", "*-1\r\n", "PING\r\n", "get a\r\n", "QUIT\n",
			"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		} {
			for _, slowly := range []bool{false, true} {
				c := r.connect()
				if slowly {
					for b := range strings.SplitSeq(first[:4], "") { // then it is answered
						c.write([]byte(b))
					}
				} else {
					c.write([]byte(first))
				}
				got, err := io.ReadAll(c.nc)
				if want := "-ERR this is kvstored's own socket; Redis clients belong to listen.resp\r\n"; err != nil || string(got) != want {
					t.Errorf("%q was answered %q, %v", first, got, err)
				}
			}
		}
		r.until("all are counted", func() bool { st := r.server.Stats(); return st.Malformed == 20 && st.Refused == 20 })
		r.checkAlive()
	})
}

// What may be the start of a frame is waited for, however much of it looks like
// a Redis client.
func TestNoRedisClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		for _, first := range []string{"", "*", "PIN", "\x00ING", "P\x00NG", "PI\x00G", "PIN\x00", "$4\r\n", "\r\nPI", "+PON", "PI\tG", "PIN\x80"} {
			c := r.connect()
			c.write([]byte(first))
			r.must(c.nc.(interface{ CloseWrite() error }).CloseWrite()) // who waits for more sees that there is none
			if got, err := io.ReadAll(c.nc); err != nil || len(got) > 0 {
				t.Errorf("%q was answered %q, %v", first, got, err)
			}
		}
		if n := r.server.Stats().Malformed; n != 0 {
			t.Errorf("%d count as malformed", n)
		}
	})
}

// A hello whose length begins as a Redis client does is one nonetheless.
func TestHelloLikeRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{})
		c := r.connect()
		const length = int('P') | int('I')<<8 // the first two bytes of "PING"
		var tags []key.Tag
		padded := func() []byte { return hello(func(m *wire.HelloRequest) { m.Space.Tags = tags }) }
		for left := length - (len(padded()) - wire.HeaderBytes); left > 0; left = length - (len(padded()) - wire.HeaderBytes) {
			const bare, least = 8 + 8, 8 // the record's head and the name; a value
			n := min(left-bare, key.MaxTextBytes)
			if rest := left - bare - n; rest > 0 && rest < bare+least {
				n -= bare + least // room for another
			}
			tags = append(tags, key.Tag{Name: fmt.Sprintf("%02d", len(tags)), Value: strings.Repeat("n", n-4)})
		}
		frame := padded()
		if !bytes.HasPrefix(frame, []byte("PI\x00\x00")) {
			t.Fatalf("the frame starts with %q", frame[:4])
		}
		c.write(frame)
		if f, err := c.read(); err != nil || f.Op != wire.OpHello || f.Code != wire.CodeOK {
			t.Errorf("answered %v %q, %v", f.Header, f.body, err)
		}
	})
}
