package attack

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// pages asks for the metrics again and again, and reads them or does not.
func pages(a *attackers, _ *key.Chain) {
	ask := []byte("GET /metrics HTTP/1.1\r\nHost: " + a.adminTCP + "\r\n\r\n")
	for _, deaf := range []bool{true, false} {
		a.each(2*a.few, func(int) {
			a.with("tcp", a.adminTCP, func(c net.Conn) {
				if !deaf {
					go func() { _, _ = io.Copy(io.Discard, c) }()
				}
				for a.send(c, ask) {
				}
			})
		})
	}
}

// waitingRequests leaves as many requests unanswered as a connection may have: waits for a
// job, room that does not come, flushes, and cancels some of them again and again.
func waitingRequests(a *attackers, known *key.Chain) {
	a.each(8*a.few, func(i int) {
		a.greeted(0, func(c net.Conn, space uint32) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			forever := wire.Deadline{Given: true, Millis: 1 << 30}
			for id := uint64(2); ; id++ {
				ask := wire.AppendRequest(nil, wire.OpPrefetch, id<<8, &wire.PrefetchRequest{Chain: knownPrompt(space, known)})
				ask = wire.AppendRequest(ask, wire.OpWarm, id<<8|1, &wire.WarmRequest{Chain: knownPrompt(space, known), Deadline: forever})
				ask = wire.AppendRequest(ask, wire.OpReserve, id<<8|2, &wire.ReserveRequest{Chain: unknownPrompt(space, 1+int(id)%64), Sizes: wire.ViewU32s([]uint32{1 << 20}), Deadline: forever})
				ask = wire.AppendRequest(ask, wire.OpFlush, id<<8|3, &wire.FlushRequest{Durable: id%2 == 0, Deadline: forever})
				ask = wire.AppendRequest(ask, wire.OpWait, id<<8|4, &wire.WaitRequest{Job: id, MinTokens: 1 << 40, Deadline: forever})
				ask = wire.AppendRequest(ask, wire.OpCancel, id<<8|5, &wire.IDRequest{ID: (id - 1) << 8 &^ uint64(i)})
				if !a.send(c, ask) {
					return
				}
			}
		})
	})
}

// descriptors sends files beside its frames, whole ones and cut ones: they are no
// client's to send, and must not stay with the daemon.
func descriptors(a *attackers, _ *key.Chain) {
	a.each(4*a.few, func(i int) {
		a.with("unix", a.d.Socket, func(c net.Conn) {
			null, err := os.Open(os.DevNull)
			if err != nil {
				return
			}
			defer null.Close()
			many := make([]int, 250)
			for n := range many {
				many[n] = int(null.Fd())
			}
			rights := syscall.UnixRights(many...)
			first := hello(0)
			if i%2 == 0 {
				first = first[:len(first)/2]
			}
			for frame := first; ; frame = wire.AppendRequest(nil, wire.OpPing, 2, wire.EmptyRequest{}) {
				n, _, err := c.(*net.UnixConn).WriteMsgUnix(frame, rights, nil)
				if a.sent.Add(int64(n)); err != nil {
					time.Sleep(10 * time.Millisecond)
					return
				}
			}
		})
	})
	a.each(a.few, func(i int) {
		a.with("unix", a.resp, func(c net.Conn) {
			null, err := os.Open(os.DevNull)
			if err != nil {
				return
			}
			defer null.Close()
			for n := 0; ; n++ {
				if _, _, err := c.(*net.UnixConn).WriteMsgUnix(respCommand("PING", fmt.Sprint(i, n)), syscall.UnixRights(int(null.Fd())), nil); err != nil {
					return
				}
			}
		})
	})
}

// lengths has the daemon remember at which lengths prompts of a hybrid model would be usable,
// of which nothing is ever stored, and claims on chunks that no client has stored.
func lengths(a *attackers, _ *key.Chain) {
	other := load.Space
	other.Model += "/window"
	var prompts atomic.Uint64
	a.each(a.few, func(int) {
		a.greeted(0, func(c net.Conn, space uint32) {
			ask := wire.AppendRequest(nil, wire.OpOpenSpace, 2, &wire.OpenSpaceRequest{Space: other})
			for id := range uint64(16) {
				chain := unknownPrompt(space, a.names/10)
				number := prompts.Add(1)
				for i := 8; i < len(chain.Hashes); i += 16 {
					binary.LittleEndian.PutUint64(chain.Hashes[i:], number)
				}
				groups := wire.Groups{}.Add(wire.Group{Space: space, Kind: wire.GroupFull}).Add(wire.Group{Space: space + 1, Kind: wire.GroupWindow, Tokens: 2 * uint32(load.Space.ChunkTokens)})
				ask = wire.AppendRequest(ask, wire.OpReserve, 3+id, &wire.ReserveRequest{Chain: chain, Sizes: wire.ViewU32s([]uint32{1, 1}), Groups: groups})
				claims := wire.Pairs{}.Add("kv_hints", fmt.Sprintf(`{"protocol_version":"1.0","actions":[{"action_id":"a","action_type":"kv.retain","action_version":"1.0","payload":{"scope":"s%d","directives":[{"start":0,"end":null,"priority":50,"duration":2}]}}]}`, number))
				ask = wire.AppendRequest(ask, wire.OpHint, 100+id, &wire.HintRequest{Chain: chain, Configs: claims})
			}
			if a.send(c, ask) {
				_ = c.SetReadDeadline(time.Now().Add(time.Second))
				_, _ = io.Copy(io.Discard, c)
			}
		})
	})
}
