package budget

import (
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
		want := Holder{UID: uint32(os.Getuid())}
		if network == "tcp" {
			want = Holder{Address: netip.MustParseAddr("127.0.0.1")}
		}
		if got := HolderOf(s); got != want {
			t.Errorf("%s: %v, want %v", network, got, want)
		}
	}
}
