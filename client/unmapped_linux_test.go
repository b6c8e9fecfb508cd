package client

import (
	"context"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestWithoutRoomForMappings: a client that lacks address space for the daemon's DRAM, or
// descriptors, has payloads over the socket.
func TestWithoutRoomForMappings(t *testing.T) {
	const addressSpace = 1 << 47 // of a process: it has not all of it
	for name, files := range map[string]int{"no address space": 1, "no descriptors": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
				if err != nil {
					t.Fatal(err)
				}
				arena := os.NewFile(uintptr(fd), "arena")
				defer arena.Close()
				if err := arena.Truncate(addressSpace); err != nil {
					t.Fatal(err)
				}
				var asked []wire.Features
				var served sync.WaitGroup
				s := inlineSetup()
				s.options.Dialer = func(context.Context, string) (net.Conn, error) {
					near, far := pipe.New()
					served.Go(func() {
						defer far.Close()
						conn, err := wire.NewConn(far)
						if err != nil {
							t.Error(err)
							return
						}
						h, body, err := conn.ReadFrame()
						var m wire.HelloRequest
						if err == nil {
							err = m.Decode(body)
						}
						if err != nil {
							t.Error(err)
							return
						}
						asked = append(asked, m.Wants)
						reply, send := s.hello, []*os.File(nil)
						if m.Wants&wire.FeatureArena != 0 {
							reply.Granted |= wire.FeatureArena
							reply.ArenaBytes, reply.Descriptors, send = addressSpace, 1, []*os.File{arena}[:files]
						}
						if err := conn.WriteFiles(wire.AppendReply(nil, wire.OpHello, h.ID, &reply), send...); err != nil {
							t.Error(err)
						}
						_, _, _ = conn.ReadFrame() // until the client leaves
					})
					return near, nil
				}
				c, err := Dial(t.Context(), "fake", s.options)
				if err != nil {
					t.Fatal(err)
				}
				if c.maps.mu.arena != nil {
					t.Error("it has mapped what does not fit")
				}
				c.Close()
				served.Wait()
				if len(asked) != 2 || asked[1]&(wire.FeatureArena|wire.FeatureStaging) != 0 {
					t.Errorf("it asked for %v", asked)
				}
			})
		})
	}
}
