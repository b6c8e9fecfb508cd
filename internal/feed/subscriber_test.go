package feed

import (
	"context"
	"encoding/binary"
	"math"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/zmtp"
)

// engine publishes batches as an engine does, with replays.
type engine struct {
	t    *testing.T
	addr [2]string
	stop context.CancelFunc
	done sync.WaitGroup
	pub  *zmtp.Publisher
	mu   sync.Mutex
	kept [][]byte
}

// start begins a life, at the addresses of the one before.
func (e *engine) start() {
	ctx, stop := context.WithCancel(context.Background())
	e.stop, e.kept = stop, nil
	e.pub = zmtp.NewPublisher(100, 10, zerolog.Nop())
	replier := &zmtp.Replier{Answer: e.answer, Connections: 10, Log: zerolog.Nop()}
	for i, serve := range []func(context.Context, net.Listener) error{e.pub.Serve, replier.Serve} {
		if e.addr[i] == "" {
			e.addr[i] = "127.0.0.1:0"
		}
		l, err := net.Listen("tcp", e.addr[i])
		if err != nil {
			e.t.Fatal(err)
		}
		e.addr[i] = l.Addr().String()
		e.done.Go(func() { _ = serve(ctx, l) })
	}
}

func (e *engine) end() {
	e.stop()
	e.done.Wait()
}

func (e *engine) answer(_ context.Context, request [][]byte, send func(...[]byte) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := binary.BigEndian.Uint64(request[0]); i < uint64(len(e.kept)); i++ {
		if err := send(binary.BigEndian.AppendUint64(nil, i), e.kept[i]); err != nil {
			return err
		}
	}
	return send(binary.BigEndian.AppendUint64(nil, math.MaxUint64), nil)
}

// say keeps a batch, and publishes it unless it is to be lost.
func (e *engine) say(lost bool, events ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kept = append(e.kept, batch(events...))
	if n := len(e.kept) - 1; !lost {
		e.pub.Publish([]byte("kv"), binary.BigEndian.AppendUint64(nil, uint64(n)), e.kept[n])
	}
}

// A subscriber comes late, misses batches, loses its publisher and finds another
// life of it: it has what the publisher has each time.
func TestSubscriber(t *testing.T) {
	e := &engine{t: t}
	e.start()
	defer func() { e.end() }()
	e.say(true, stored(nil, 1, 2)) // before there is a subscriber
	r := newRig(t, Options{Now: time.Now})
	s := &Subscriber{Publisher: r.p, Events: "tcp://" + e.addr[0], Replay: "tcp://" + e.addr[1], Log: zerolog.Nop()}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer stop()
	comes := func(what string, depth int, hashes ...int) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); r.depth(hashes...) != depth; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				stats, err := r.p.Stats()
				t.Fatalf("%s: %d of %v are known, want %d; %+v, %v", what, r.depth(hashes...), hashes, depth, stats, err)
			}
		}
	}
	comes("a late subscriber", 2, 1, 2)
	for e.pub.Stats().Sent == 0 { // its subscription is there
		e.say(false, removed(99))
		time.Sleep(time.Millisecond)
	}
	e.say(true, stored(2, 3))
	e.say(true, stored(3, 4))
	e.say(false, stored(4, 5))
	comes("lost batches", 5, 1, 2, 3, 4, 5)
	e.end()
	e.start()
	e.say(true, stored(nil, 1))
	comes("another life", 1, 1, 2, 3)
	stats, err := r.p.Stats()
	if stats.Gaps == 0 || stats.Forgotten == 0 || stats.Garbage != 0 || err != nil {
		t.Errorf("%+v, %v", stats, err)
	}
}
