package server_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"testing/synctest"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/server"
	"github.com/kvstored/kvstored/internal/test/pipe"
	"github.com/kvstored/kvstored/internal/wire"
)

// startingRig connects to a daemon that is starting, until the function that comes with
// it is called.
func startingRig(t *testing.T) (dial func() (net.Conn, error), end func()) {
	t.Helper()
	l := pipe.Listen("s")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- server.Starting(ctx, l, zerolog.Nop()) }()
	return func() (net.Conn, error) { return l.Dial(t.Context()) }, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestStartingTells: whatever a client begins with, it is told what is wrong with
// that, or that the daemon is starting.
func TestStartingTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := startingRig(t)
		defer end()
		hello := func(least, most uint16) []byte {
			return wire.AppendRequest(nil, wire.OpHello, 3, &wire.HelloRequest{MinVersion: least, MaxVersion: most})
		}
		noMagic := hello(2, 2)
		noMagic[wire.HeaderBytes] = 'X'
		cut := hello(2, 2)[:wire.HeaderBytes+16]
		binary.LittleEndian.PutUint32(cut, 16)
		for name, tt := range map[string]struct {
			frame []byte
			code  wire.Code
		}{
			"hello":          {hello(2, 2), wire.CodeStarting},
			"a newer client": {hello(2, 9), wire.CodeStarting},
			"an older one":   {hello(1, 1), wire.CodeVersion},
			"no magic":       {noMagic, wire.CodeBadRequest},
			"a short hello":  {cut, wire.CodeBadRequest},
			"another frame":  {wire.AppendRequest(nil, wire.OpPing, 3, wire.EmptyRequest{}), wire.CodeBadRequest},
		} {
			nc, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := nc.Write(tt.frame); err != nil {
				t.Fatal(err)
			}
			reply, err := io.ReadAll(nc)
			if err != nil || len(reply) < wire.HeaderBytes {
				t.Fatalf("%s: %d bytes, %v", name, len(reply), err)
			}
			if code := wire.Code(binary.LittleEndian.Uint16(reply[6:])); code != tt.code || binary.LittleEndian.Uint64(reply[8:]) != 3 {
				t.Errorf("%s: %s, want %s", name, code, tt.code)
			}
			nc.Close()
		}
	})
}

// TestStartingEnds: clients that say nothing hold nothing up, and others are not
// kept from their answer by them. All are told to come again.
func TestStartingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial, end := startingRig(t)
		var silent []net.Conn
		for range 80 { // more than are read at a time
			nc, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			silent = append(silent, nc)
		}
		nc, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := nc.Write(wire.AppendRequest(nil, wire.OpHello, 3, &wire.HelloRequest{MinVersion: 2, MaxVersion: 2})); err != nil {
			t.Fatal(err)
		}
		if reply, err := io.ReadAll(nc); err != nil || len(reply) < wire.HeaderBytes || reply[6] != byte(wire.CodeStarting) {
			t.Errorf("beside clients that say nothing: %x, %v", reply, err)
		}
		end()
		for i, nc := range silent {
			if reply, err := io.ReadAll(nc); err != nil || len(reply) < wire.HeaderBytes || reply[6] != byte(wire.CodeStarting) || binary.LittleEndian.Uint64(reply[8:]) != 0 {
				t.Errorf("client %d, which says nothing: %x, %v", i, reply, err)
			}
		}
		if _, err := dial(); err == nil {
			t.Error("it listens still")
		}
	})
}
