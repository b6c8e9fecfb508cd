package feed

import (
	"testing"
	"time"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/feed/feedtest"
	"github.com/kvstored/kvstored/router/index"
)

type list = feedtest.List

const blockTokens = feedtest.BlockTokens

var pack, stored, removed, batch = feedtest.Pack, feedtest.Stored, feedtest.Removed, feedtest.Batch

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
	found, err := s.FindTokens(nil, feedtest.Tokens(hashes...), index.FindOptions{})
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
