package feed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/index"
)

const (
	streamChunks = 31 // chunk n stands on chunk n/2, and 1 is the first
	streamTiers  = 3
)

var (
	streamSpace = key.SpaceID{1}
	otherSpace  = key.SpaceID{2} // of another model
)

// streamed is a daemon as a byte string plays it, and the stream that hears it.
type streamed struct {
	*rig
	s    *Stream
	has  map[int]client.Tiers
	seq  uint64
	data []byte

	found []index.Match // room
}

func newStreamed(t *testing.T, data []byte) *streamed {
	r := newRig(t, Options{})
	r.m.ChunkTokens = 4
	r.p.w.Chunks = true
	d := &streamed{rig: r, s: &Stream{Publisher: r.p}, has: make(map[int]client.Tiers), data: data}
	d.p.canAsk()
	d.connect()
	return d
}

// byte is the next one; 0 at the end.
func (d *streamed) byte() (b byte) {
	if len(d.data) > 0 {
		b, d.data = d.data[0], d.data[1:]
	}
	return b
}

func streamHash(n int) (h key.Hash) {
	if n > 0 {
		h = key.Hash{byte(n), 7: 1, 15: 1}
	}
	return h
}

func stored1(n int, at client.Tiers) client.Event {
	return client.Event{Kind: client.EventStored, Tier: at, Space: streamSpace, Hash: streamHash(n), Parent: streamHash(n / 2), Tokens: 4}
}

// hear hands on a batch. A stream that is refused something connects again.
func (d *streamed) hear(b *client.EventBatch) {
	b.Epoch = 7
	if err := d.s.batch(context.Background(), b); err != nil {
		d.p.Lost()
		d.now = d.now.Add(2 * lastPenalty)
		d.connect()
	}
}

// connect is the beginning of a session: all that is there, unless it goes on.
func (d *streamed) connect() {
	d.p.Connected()
	d.s.spaces = make(map[key.SpaceID]*counted)
	names := map[key.SpaceID]key.Space{
		streamSpace: {Model: d.m.Name, World: 1, ChunkTokens: 4}, otherSpace: {Model: "other", ChunkTokens: 4},
	}
	if _, begun := d.p.Next(); begun && d.s.known {
		d.hear(&client.EventBatch{Seq: d.seq, Spaces: names})
		d.seq++
		return
	}
	d.s.known = false
	d.p.Reset()
	first := &client.EventBatch{Seq: d.seq, Snapshot: true, Spaces: names}
	for n := 1; n <= streamChunks; n++ {
		for at := client.Tiers(1); at < 1<<streamTiers; at <<= 1 {
			if d.has[n]&at != 0 {
				first.Events = append(first.Events, stored1(n, at))
			}
		}
		if n%10 == 0 {
			d.hear(first)
			first = &client.EventBatch{Seq: d.seq, Snapshot: true}
		}
	}
	first.Complete = true
	d.hear(first)
}

// play makes one batch of the next bytes.
func (d *streamed) play() {
	b := &client.EventBatch{Seq: d.seq}
	d.seq++
	for range 1 + d.byte()%8 {
		n, at := 1+int(d.byte())%streamChunks, client.Tiers(1)<<(d.byte()%streamTiers)
		switch op := d.byte() % 16; {
		case op < 9 && d.has[n]&at == 0:
			d.has[n] |= at
			b.Events = append(b.Events, stored1(n, at))
		case op < 14 && d.has[n]&at != 0:
			d.has[n] &^= at
			b.Events = append(b.Events, client.Event{Kind: client.EventRemoved, Tier: at, Space: streamSpace, Hash: streamHash(n)})
		case op == 14:
			clear(d.has)
			b.Events = append(b.Events, client.Event{Kind: client.EventCleared})
		default: // chunks that do not count: another model's, a shorter one, of a space without a name
			e := stored1(n, at)
			e.Space, e.Tokens = []key.SpaceID{otherSpace, streamSpace, {9}}[n%3], 3
			e.Hash[1] = 1
			b.Events = append(b.Events, e)
		}
	}
	d.hear(b)
	switch d.byte() % 32 {
	case 0: // the log has let go of batches
		d.hear(&client.EventBatch{Seq: d.seq, Lost: true})
	case 1: // a connection that ends for less than the grace, and for longer
		d.p.Lost()
		d.now = d.now.Add(time.Second)
		d.connect()
	case 2:
		d.p.Lost()
		d.now = d.now.Add(time.Hour)
		d.p.Tick()
		d.connect()
	case 3:
		d.p.mu.Lock()
		d.p.askAgain()
		d.p.mu.Unlock() // the next batch is refused
		d.hear(&client.EventBatch{Seq: d.seq})
	case 4:
		if d.p.Tick(); len(d.p.silent) > 0 { // as endIfSilent does
			d.p.Lost()
			d.connect()
		}
	}
}

// check compares what the index says of each prompt with what the daemon has.
func (d *streamed) check() error {
	shard, err := d.x.Shard(d.m.Chunks("", ""))
	if errors.Is(err, index.ErrUnknownShard) && len(d.has) == 0 {
		return nil
	}
	for n := 1; n <= streamChunks; n++ {
		chain := &streamChains[n]
		var want, got [index.Media]int32
		for m, of := range [index.Media]client.Tiers{0, wire.TierCPU, wire.TierCPU | wire.TierDisk, 7} {
			for int(want[m]) < len(chain.chunks) && d.has[chain.chunks[want[m]]]&of != 0 {
				want[m]++
			}
		}
		if err == nil {
			d.found = shard.Find(d.found[:0], chain.hashes, index.FindOptions{})
			for _, f := range d.found {
				got = f.Blocks
			}
		}
		if got != want {
			return fmt.Errorf("chunk %d: the index has %v of the chain %v, want %v; %v", n, got, chain.chunks, want, d.has)
		}
	}
	return nil
}

// streamChain is a chunk and those before it.
type streamChain struct {
	chunks []int
	hashes []uint64
}

var streamChains = func() (all [streamChunks + 1]streamChain) {
	for n := 1; n <= streamChunks; n++ {
		h := streamHash(n)
		before := all[n/2]
		all[n].chunks = append(slices.Clone(before.chunks), n)
		all[n].hashes = append(slices.Clone(before.hashes), uint64(h[0])<<56|uint64(h[7]))
	}
	return all
}()

// streamBytes are of a history that is fuzzed, some ten batches: longer ones bring
// nothing that those do not, and take their time.
const streamBytes = 256

// playStream plays a history: whatever a daemon stores, loses and says anew, over
// connections that end and batches that are lost, the index has what the daemon has
// after each batch.
func playStream(t *testing.T, data []byte) {
	d := newStreamed(t, data)
	for len(d.data) > 0 {
		d.play()
		if err := d.check(); err != nil {
			t.Fatal(err)
		}
	}
}

// histories makes random ones.
func histories(count, length int) (all [][]byte) {
	r := rand.New(rand.NewPCG(1, 1))
	for range count {
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		all = append(all, data)
	}
	return all
}

func TestStreamHistories(t *testing.T) {
	for _, data := range histories(20, 2000) {
		playStream(t, data)
	}
}

func FuzzStream(f *testing.F) {
	f.Add([]byte("store, remove and lose"))
	for _, data := range histories(8, streamBytes) {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { playStream(t, data[:min(len(data), streamBytes)]) })
}

// FuzzPosts: posted and live batches of any bytes and numbers, at any time, break
// nothing, and what waits stays within its bounds.
func FuzzPosts(f *testing.F) {
	f.Add([]byte{1, 0, 0, 20}, batch(stored(nil, 1, 2), stored(9, 10)))
	f.Add([]byte{0, 1, 1, 0, 2, 3, 250, 7, 3, 1, 1, 1}, batch(removed(1), list{"AllBlocksCleared"}))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 255}, batch(stored(nil, 1), list{"BlockStored", list{1}, nil, list{1, 1}, 0}))
	f.Fuzz(func(t *testing.T, steps, payload []byte) {
		r := newRig(t, Options{WaitingEvents: 4, WaitingBlocks: 16, MaxBlocks: 64})
		good := batch(stored(nil, 1, 2, 3))
		for ; len(steps) >= 4; steps = steps[4:] {
			seq, body := uint64(steps[1]%8), payload
			if steps[2]%2 == 0 {
				body = good
			}
			switch steps[0] % 5 {
			case 0:
				_, _ = r.p.Post(fmt.Sprint(steps[2]%4), seq, body)
			case 1:
				_, _ = r.p.Live(seq, body)
			case 2:
				_, _ = r.p.Replay(seq, body)
			case 3:
				_ = r.p.Snapshot(body)
			case 4:
				r.p.Tick()
			}
			r.now = r.now.Add(time.Duration(steps[3]) * time.Second)
		}
		if s, _ := r.p.Stats(); s.Waiting > 4 || s.Held > 64+len(payload) {
			t.Errorf("%+v", s)
		}
		r.now = r.now.Add(time.Hour) // it is heard again, whatever came before
		r.p.Reset()
		if _, err := r.p.Live(7, good); err != nil {
			t.Fatal(err)
		}
		r.want(3, 1, 2, 3)
	})
}
