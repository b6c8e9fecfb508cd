package wire

import (
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/kvstored/kvstored/internal/socket"
)

// BenchmarkRoundTrip compares an empty request and reply with the floor: the
// same bytes over the same kind of socket with nothing around them.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("echo/blocking", func(b *testing.B) { benchEcho(b, readBlocking) })
	b.Run("echo/polling", func(b *testing.B) { benchEcho(b, readPolling) })
	b.Run("wire", benchWire)
}

func benchWire(b *testing.B) {
	client, server := connPair(b)
	go func() {
		for {
			h, _, err := server.ReadFrame()
			if err != nil {
				return
			}
			var out [HeaderBytes]byte
			server.Write(Header{Kind: KindReply, Op: h.Op, ID: h.ID}.Append(out[:0]))
		}
	}()
	frame := pingFrame(1)
	for b.Loop() {
		if _, err := client.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, _, err := client.ReadFrame(); err != nil {
			b.Fatal(err)
		}
	}
}

func benchEcho(b *testing.B, read func(*net.UnixConn) func([]byte) error) {
	client, server := unixPair(b)
	readServer, readClient := read(server), read(client)
	go func() {
		p := make([]byte, len(pingFrame(1)))
		for readServer(p) == nil {
			server.Write(p)
		}
	}()
	p := pingFrame(1)
	for b.Loop() {
		client.Write(p)
		if err := readClient(p); err != nil {
			b.Fatal(err)
		}
	}
}

func readBlocking(uc *net.UnixConn) func([]byte) error {
	return func(p []byte) error {
		_, err := uc.Read(p)
		return err
	}
}

func readPolling(uc *net.UnixConn) func([]byte) error {
	raw, err := uc.SyscallConn()
	if err != nil {
		return func([]byte) error { return err }
	}
	var p []byte
	var n int
	step := func(fd uintptr) bool {
		for start := time.Now(); ; {
			n, err = syscall.Read(int(fd), p)
			if err != syscall.EAGAIN {
				return true
			}
			if time.Since(start) > socket.LongestPoll {
				return false
			}
		}
	}
	return func(to []byte) error {
		p = to
		if e := raw.Read(step); e != nil {
			return e
		}
		if err == nil && n == 0 {
			return io.EOF
		}
		return err
	}
}

// BenchmarkCodec appends and decodes the messages of the hot path.
func BenchmarkCodec(b *testing.B) {
	hot := []string{
		"lookup_hashes_request", "lookup_reply", "prefetch_ranks_request", "prefetch_reply", "prefetch_push", "reserve_request", "reserve_reply",
		"commit_request", "commit_reply", "release_request", "release_reply",
	}
	for _, g := range golden {
		if !slices.Contains(hot, g.name) {
			continue
		}
		b.Run(g.name, func(b *testing.B) {
			b.ReportAllocs()
			var body []byte
			for b.Loop() {
				body = g.m.Append(body[:0])
				if err := g.m.Decode(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
