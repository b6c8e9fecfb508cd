package budget

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

func TestHolderOf(t *testing.T) {
	for network, addr := range map[string]string{"unix": filepath.Join(t.TempDir(), "s"), "tcp": "127.0.0.1:0"} {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		s, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		want, text := Holder{UID: uint32(os.Getuid())}, fmt.Sprint("user ", os.Getuid())
		if network == "tcp" {
			want, text = Holder{Address: netip.MustParseAddr("127.0.0.1")}, "host 127.0.0.1"
		}
		if got := HolderOf(s); got != want || got.String() != text {
			t.Errorf("%s: %v, want %s", network, got, text)
		}
	}
}
