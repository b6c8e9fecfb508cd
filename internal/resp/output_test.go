package resp

import (
	"io"
	"net"
	"testing"
	"time"
)

// A reply of many parts goes out while it is made.
func TestLongReply(t *testing.T) {
	client, conn := net.Pipe()
	read := make(chan int64)
	go func() {
		n, _ := io.Copy(io.Discard, client)
		read <- n
	}()
	var wrote int64
	o := newOutput(conn, nil, time.Minute, func(n int64) { wrote += n })
	const n = 10_000
	part := make([]byte, inPlace)
	o.array(n)
	for range n {
		if o.bulk(part); len(o.buf) > flushBytes {
			t.Fatalf("%d bytes were gathered", len(o.buf))
		}
	}
	o.flush()
	o.drain()
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got, want := <-read, int64(len("*10000\r\n")+n*(len("$4096\r\n")+inPlace+len("\r\n"))); got != want || wrote != want {
		t.Errorf("%d bytes were written and %d read, want %d", wrote, got, want)
	}
}
