package resp_test

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/internal/resp"
)

// These have sockets of the system, from and to which bytes go by vectors.

// A client may send everything before it reads anything.
func TestPipeline(t *testing.T) {
	r := newSocketRig(t, 64<<20, resp.Options{})
	const n = 10_000
	value := strings.Repeat("v", 5000)
	c := r.dial(r.unix)
	c.do("+OK\r\n", "SET", "a", value)
	var in bytes.Buffer
	for i := range n {
		in.Write(encode("GET", "a"))
		in.Write(encode("PING", fmt.Sprint(i)))
	}
	c.send(in.Bytes())
	for i := range n {
		c.expect(bulk(value) + bulk(fmt.Sprint(i)))
	}
}

// A client that ends its side gets its replies.
func TestHalfClosed(t *testing.T) {
	r := newSocketRig(t, 64<<20, resp.Options{})
	for _, addr := range []net.Addr{r.unix, r.tcp} {
		c := r.dial(addr)
		value := strings.Repeat("v", 1<<20)
		for range 8 {
			c.send(append(encode("SET", "a", value), encode("GET", "a")...))
		}
		if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for range 8 {
			c.expect("+OK\r\n" + bulk(value))
		}
		c.closed("")
	}
}

// The commands that LMCache's Redis connector sends for one chunk, and the answers
// that it must get.
func TestLMCacheConnector(t *testing.T) {
	r := newSocketRig(t, 64<<20, resp.Options{})
	for _, addr := range []net.Addr{r.unix, r.tcp} {
		lmcacheConnector(r.dial(addr), 200_000)
		slow := r.dial(addr)
		slow.slow = true
		lmcacheConnector(slow, 2_000)
	}
}

func lmcacheConnector(c *conn, size int) {
	c.t.Helper()
	c.do("+OK\r\n", "CLIENT", "SETINFO", "LIB-NAME", "redis-py")
	c.do("+OK\r\n", "CLIENT", "SETINFO", "LIB-VER", "5.0.1")
	const key = "vllm@meta-llama/Llama-3.1-8B@1@0@6f3c9a71d2e8b405@bfloat16"
	kv := strings.Repeat("\x00\x01\xfe\xff\r\n$5\r\n", size)
	metadata := "\x80\x4f\x12\x00\x01\x00\x00\x00\x03\x00\x00\x00\x02\x00\x00\x00\x20\x00\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00"
	c.do(":0\r\n", "EXISTS", key+"metadata")
	c.do("+OK\r\n", "SET", key+"kv_bytes", kv)
	c.do(":0\r\n", "EXISTS", key+"metadata")
	c.do("+OK\r\n", "SET", key+"metadata", metadata, "EX", "3600")
	c.do(":1\r\n", "EXISTS", key+"metadata")
	c.do(bulk(metadata), "GET", key+"metadata")
	c.do(bulk(kv), "GET", key+"kv_bytes")
	c.do(":1\r\n", "DEL", key+"kv_bytes")
	c.do(bulk(metadata), "GET", key+"metadata")
	c.do("$-1\r\n", "GET", key+"kv_bytes")
	c.do(":1\r\n", "DEL", key+"metadata")
	c.do(":0\r\n", "EXISTS", key+"metadata")
}
