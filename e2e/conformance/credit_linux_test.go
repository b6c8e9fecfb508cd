package conformance_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/config"
	"github.com/kvstored/kvstored/e2e/daemon"
	"github.com/kvstored/kvstored/e2e/load"
	"github.com/kvstored/kvstored/internal/wire"
)

const (
	// creditPad is what a request that waits takes of the least credit, 1 MiB.
	creditPad = 900 << 10
	// creditID is a number that no client gives a request.
	creditID = 1 << 62
)

// waitingRequest is a request that waits until it is cancelled, and is large: what
// makes it so is an option that no daemon knows.
func waitingRequest(t *testing.T, id uint64) []byte {
	t.Helper()
	body := (&wire.EventsRequest{From: wire.EventsNow}).Append(nil)
	binary.LittleEndian.PutUint32(body[len(body)-8:], 1) // options
	body = binary.LittleEndian.AppendUint16(body, 0x7fff)
	body = binary.LittleEndian.AppendUint16(body, 0)
	body = binary.LittleEndian.AppendUint32(body, creditPad)
	body = append(body, make([]byte, creditPad)...)
	return append(wire.Header{BodyBytes: uint32(len(body)), Op: wire.OpEvents, ID: id}.Append(nil), body...)
}

// spendthrift stands between a client and the daemon. It has the connection agree to the
// least credit, uses that up with a request of its own, and gives it back when the
// daemon has refused something twice.
type spendthrift struct {
	t      *testing.T
	daemon string
}

func readRaw(r io.Reader) (wire.Header, []byte, error) {
	var head [wire.HeaderBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return wire.Header{}, nil, err
	}
	h := wire.DecodeHeader(head[:])
	frame := make([]byte, len(head)+int(h.BodyBytes))
	copy(frame, head[:])
	_, err := io.ReadFull(r, frame[len(head):])
	return h, frame, err
}

func (s *spendthrift) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go s.carry(conn)
	}
}

func (s *spendthrift) carry(conn net.Conn) {
	defer conn.Close()
	real, err := net.Dial("unix", s.daemon)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer real.Close()
	_, hello, err := readRaw(conn)
	if err != nil {
		return
	}
	at := hello[wire.HeaderBytes:]
	binary.LittleEndian.PutUint32(at[8:], 0)                    // wants: descriptors do not pass here
	binary.LittleEndian.PutUint32(at[12:], wire.LeastBodyBytes) // max_request, and so the credit
	var writing sync.Mutex
	ask := func(frame []byte) {
		writing.Lock()
		defer writing.Unlock()
		_, _ = real.Write(frame)
	}
	ask(append(hello, waitingRequest(s.t, creditID)...))
	go func() {
		for {
			_, frame, err := readRaw(conn)
			if err != nil {
				real.Close()
				return
			}
			ask(frame)
		}
	}()
	var held [][]byte // answers that come while the credit is given back
	for refused := 0; ; {
		h, frame, err := readRaw(real)
		if err != nil {
			return
		}
		switch {
		case h.Op == wire.OpEvents, h.ID == creditID+1:
			if h.ID == creditID && h.Code == wire.CodeCancelled {
				for _, frame := range held {
					_, _ = conn.Write(frame)
				}
				held, refused = nil, 3
			}
			continue
		case h.Code == wire.CodeOverBudget:
			if refused++; refused == 2 {
				ask(wire.AppendRequest(nil, wire.OpCancel, creditID+1, &wire.IDRequest{ID: creditID}))
			}
		}
		if refused == 2 {
			held = append(held, frame)
			continue
		}
		if _, err := conn.Write(frame); err != nil {
			return
		}
	}
}

// flood sends far more than its credit, once at least and for as long as stop is open, and
// reports how often it was refused, as it must be each time but the first.
func flood(t *testing.T, socket string, stop <-chan struct{}) (refused int) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer conn.Close()
	hello := wire.HelloRequest{MinVersion: 2, MaxVersion: 2, MaxRequest: wire.LeastBodyBytes}
	_, _ = conn.Write(wire.AppendRequest(nil, wire.OpHello, 1, &hello))
	_, _ = conn.Write(waitingRequest(t, 2))
	if _, _, err := readRaw(conn); err != nil {
		t.Error(err)
		return 0
	}
	for id := uint64(3); ; id++ {
		if _, err := conn.Write(waitingRequest(t, id)); err != nil {
			t.Errorf("the flood, request %d: %v", id, err)
			return refused
		}
		for {
			h, frame, err := readRaw(conn)
			if err != nil {
				t.Errorf("the flood, request %d: %v", id, err)
				return refused
			}
			if h.Kind == wire.KindPush {
				continue
			}
			var e wire.ErrorReply
			if err := e.Decode(frame[wire.HeaderBytes:]); err != nil || h.ID != id || h.Code != wire.CodeOverBudget || e.Retry != wire.RetryRelease {
				t.Errorf("the flood, request %d: %+v, %+v, %v", id, h, e, err)
				return refused
			}
			break
		}
		refused++
		select {
		case <-stop:
			return refused
		default:
		}
	}
}

// TestCreditAttack: who has more bodies under way than agreed on is refused, in each
// client with the class that says what to do, and loses nothing; others go on.
func TestCreditAttack(t *testing.T) {
	d := daemon.Start(t, func(c *config.Config) { c.Events.Enabled = true })
	between := filepath.Join(filepath.Dir(d.Socket), "between")
	l, err := net.Listen("unix", between)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go (&spendthrift{t, d.Socket}).serve(l)

	stop, done := make(chan struct{}), make(chan int)
	go func() { done <- flood(t, d.Socket, stop) }()
	other, err := client.Dial(t.Context(), d.Socket, client.Options{Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	hash := make([]byte, 16)
	goesOn := func(i byte) {
		t.Helper()
		hash[0] = i + 1
		p := client.Hashes(16, hash, []uint32{uint32(load.Space.ChunkTokens)})
		if r, err := other.Put(t.Context(), p, 0, [][]byte{{i}}); err != nil || len(r) != 1 || r[0].Code != client.ResultStored {
			t.Errorf("another client stores: %v, %v", r, err)
		}
		if got, err := other.Get(t.Context(), p, client.GetOptions{}); err != nil || len(got) != 1 || got[0].Bytes[0] != i {
			t.Errorf("another client reads: %v, %v", got, err)
		}
	}
	goesOn(0)

	c, err := client.Dial(t.Context(), between, client.Options{Space: &load.Space})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	hash[0] = 100
	p := client.Hashes(16, hash, []uint32{uint32(load.Space.ChunkTokens)})
	payload := [][]byte{make([]byte, 300<<10)}
	for range 2 {
		_, err := c.Put(t.Context(), p, 0, payload)
		if e := (*client.Error)(nil); !errors.As(err, &e) || e.Code != client.ErrOverBudget || e.Retry != client.RetryRelease {
			t.Errorf("beyond the credit: %v", err)
		}
		if m, err := c.Lookup(t.Context(), p, 0); err != nil || m.Total.Chunks != 0 {
			t.Errorf("a small request: %+v, %v", m, err)
		}
	}
	if r, err := c.Put(t.Context(), p, 0, payload); err != nil || len(r) != 1 || r[0].Code != client.ResultStored {
		t.Errorf("with the credit back: %v, %v", r, err)
	}
	goesOn(1)

	close(stop)
	t.Logf("the flood was refused %d times", <-done)
}
