package feedtest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/router/zmtp"
)

// Engine publishes batches as an engine does, with replays of all of them.
type Engine struct {
	t    testing.TB
	addr [2]string
	stop context.CancelFunc
	done sync.WaitGroup
	pub  *zmtp.Publisher
	mu   sync.Mutex
	kept [][]byte
}

// NewEngine makes an engine. Start begins its first life.
func NewEngine(t testing.TB) *Engine { return &Engine{t: t} }

// Events and Replay are its endpoints.
func (e *Engine) Events() string { return "tcp://" + e.addr[0] }

// Replay is where batches are asked for again.
func (e *Engine) Replay() string { return "tcp://" + e.addr[1] }

// Start begins a life, at the addresses of the one before.
func (e *Engine) Start() {
	ctx, stop := context.WithCancel(context.Background())
	e.mu.Lock()
	e.stop, e.kept = stop, nil
	e.pub = zmtp.NewPublisher(100, 10, zerolog.Nop())
	e.mu.Unlock()
	replier := &zmtp.Replier{Answer: e.answer, Connections: 10, Log: zerolog.Nop()}
	for i, serve := range []func(context.Context, net.Listener) error{e.pub.Serve, replier.Serve} {
		if e.addr[i] == "" {
			e.addr[i] = ownAddress()
		}
		l, err := net.Listen("tcp", e.addr[i])
		if err != nil {
			e.t.Fatal(err)
		}
		e.addr[i] = l.Addr().String()
		e.done.Go(func() { _ = serve(ctx, l) })
	}
}

// ownAddress is a loopback address of this process alone, with a port to be chosen: between
// two lives of an engine no connection from 127.0.0.1 can take the port.
func ownAddress() string {
	pid := os.Getpid()
	return fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16&63, pid>>8&255, pid&255)
}

// End ends a life, with all its connections.
func (e *Engine) End() {
	e.stop()
	e.done.Wait()
}

// answer replays as vLLM does, with a topic; a bridge has none.
func (e *Engine) answer(_ context.Context, request [][]byte, send func(...[]byte) error) error {
	e.mu.Lock()
	kept := e.kept
	e.mu.Unlock()
	for i := binary.BigEndian.Uint64(request[0]); i < uint64(len(kept)); i++ {
		if err := send([]byte("kv"), binary.BigEndian.AppendUint64(nil, i), kept[i]); err != nil {
			return err
		}
	}
	return send(nil, binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil)
}

// Say keeps a batch, and publishes it unless it is to be lost.
func (e *Engine) Say(lost bool, events ...any) { e.Raw(lost, Batch(events...)) }

// Raw is Say for the bytes of a batch.
func (e *Engine) Raw(lost bool, payload []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, payload)
	if n := len(e.kept) - 1; !lost {
		e.pub.Publish([]byte("kv"), binary.BigEndian.AppendUint64(nil, uint64(n)), payload)
	}
}

// Next is the number of the next batch of this life.
func (e *Engine) Next() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return uint64(len(e.kept))
}

// Sent is how many messages went to subscribers in this life.
func (e *Engine) Sent() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.pub.Stats().Sent
}
