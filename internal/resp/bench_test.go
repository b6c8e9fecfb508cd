package resp_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/kvstored/kvstored/internal/resp"
)

// BenchmarkExists asks for 1,000 names in one command.
func BenchmarkExists(b *testing.B) {
	r := newSocketRig(b, 512<<20, resp.Options{})
	c := r.dial(r.unix)
	args := []string{"EXISTS"}
	for i := range 1000 {
		args = append(args, fmt.Sprintf("model@1@0@%038x", i))
		c.do("+OK\r\n", "SET", args[i+1], string(make([]byte, 32<<10)))
	}
	command, reply := encode(args...), make([]byte, len(":1000\r\n"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(command); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c.in, reply); err != nil || string(reply) != ":1000\r\n" {
			b.Fatal(string(reply), err)
		}
	}
}
