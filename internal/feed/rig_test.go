package feed

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// pack writes msgpack: lists, texts, whole numbers and nil.
func pack(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xc0)
	case int:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), uint64(v))
	case string:
		return append(append(dst, 0xd9, byte(len(v))), v...)
	case []any:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(len(v)))
		for _, e := range v {
			dst = pack(dst, e)
		}
		return dst
	}
	panic("no form for it")
}

type list = []any

const blockTokens = 2

// stored is an event of blocks; the tokens of a block are its hash, twice.
func stored(parent any, hashes ...int) list {
	all, tokens := list{}, list{}
	for _, h := range hashes {
		all, tokens = append(all, h), append(tokens, h, h)
	}
	return list{"BlockStored", all, parent, tokens, blockTokens, nil, "GPU"}
}

func removed(hashes ...int) list {
	all := list{}
	for _, h := range hashes {
		all = append(all, h)
	}
	return list{"BlockRemoved", all, "GPU"}
}

func batch(events ...any) []byte { return pack(nil, list{1, list(events), 0}) }

// rig is a publisher of one worker, on a clock of its own.
type rig struct {
	*testing.T
	x   *index.Index
	p   *Publisher
	m   *Model
	now time.Time
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{T: t, now: time.Unix(1e9, 0), m: &Model{Name: "m", BlockTokens: blockTokens}}
	if err := r.m.Check(); err != nil {
		t.Fatal(err)
	}
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := Worker{Worker: index.Worker{ID: "w"}, Dialect: event.VLLM}
	if err := x.Register(w.Worker, index.WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	o.Index, r.x = x, x
	if o.Now == nil {
		o.Now = func() time.Time { return r.now }
	}
	r.p = New(o, w, r.m)
	r.p.Connected()
	return r
}

// depth is how many blocks of a prompt the worker has.
func (r *rig) depth(hashes ...int) int {
	r.Helper()
	s, err := r.x.Shard(r.m.Blocks("", "", ""))
	if err != nil {
		return 0
	}
	var tokens []uint32
	for _, h := range hashes {
		tokens = append(tokens, uint32(h), uint32(h))
	}
	found, err := s.FindTokens(nil, tokens, index.FindOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if len(found) == 0 {
		return 0
	}
	return int(found[0].Blocks[index.GPU])
}

func (r *rig) live(seq uint64, events ...any) Verdict {
	r.Helper()
	v, err := r.p.Live(seq, batch(events...))
	if err != nil {
		r.Fatal(err)
	}
	return v
}

func (r *rig) want(depth int, hashes ...int) {
	r.Helper()
	if got := r.depth(hashes...); got != depth {
		r.Errorf("%d of the blocks %v are known, want %d", got, hashes, depth)
	}
}
