package policy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// check walks over all chunks and lists and compares with the counters.
func (p *tenure) check(t *testing.T) {
	t.Helper()
	known, seats, residents := 0, 0, 0
	for i := uint32(1); i < p.chunks.records.Len(); i++ {
		n := p.chunks.At(i)
		if n.known() {
			known++
		}
		if n.is(resident) {
			residents++
		}
		if n.is(inCell) {
			seats++
			if !n.is(resident) || n.kids > 0 || n.is(passedOver) {
				t.Fatalf("chunk %+v is a candidate", *n)
			}
		} else if n.is(resident) && n.kids == 0 && !n.is(passedOver) {
			t.Fatalf("leaf %+v is no candidate", *n)
		}
		if n.watch != 0 && p.learner.watched[n.watch-1] != i {
			t.Fatalf("chunk %d is watched in the place of %d", i, p.learner.watched[n.watch-1])
		}
	}
	for step, l := range p.cells.layers {
		for c := 0; l != nil && c < len(l.lists); c++ {
			full := l.lists[c].front != 0
			rank := p.cells.rank[c]
			if full != (l.taken[c/64]>>(c%64)&1 == 1) || full && l.order[rank/64]>>(rank%64)&1 == 0 {
				t.Fatalf("step %d, cell %d: its bits are wrong", step, c)
			}
			for i := l.lists[c].front; i != 0; i = p.chunks.At(i).next {
				seats--
			}
		}
	}
	if known != p.chunks.known || residents != p.resident || seats != 0 {
		t.Fatalf("%d known, %d resident, %d seats too many; counted %d, %d", known, residents, seats, p.chunks.known, p.resident)
	}
	if limit := p.resident + max(p.resident, p.floor); known > limit {
		t.Fatalf("%d known, want at most %d", known, limit)
	}
}

// play asks for random prompts of a growing tree and returns the victims.
func (p *tenure) play(seed uint64, requests, capacity int, after func()) (victims []ID) {
	r := rand.New(rand.NewPCG(seed, 0))
	type node struct{ parent, depth int }
	tree := []node{{}}
	var free []ID
	at := make(map[ID]int) // resident
	for i := range capacity {
		free = append(free, ID(i))
	}
	ids := make(map[int]ID)
	for range requests {
		leaf := len(tree) - 1 - int(r.ExpFloat64()*50)
		leaf = max(0, leaf)
		for range r.IntN(20) {
			tree = append(tree, node{leaf, tree[leaf].depth + 1})
			leaf = len(tree) - 1
		}
		chain := make([]uint64, tree[leaf].depth)
		for n := leaf; n != 0; n = tree[n].parent {
			chain[tree[n].depth-1] = uint64(n)
		}
		p.Observe(Request{Chain: chain, ChunkTokens: 4096})
		parent := uint64(0)
		for _, hash := range chain {
			up := parent
			parent = hash
			if _, there := ids[int(hash)]; there {
				continue
			}
			if len(free) == 0 {
				if !p.Admit(hash, up) {
					break
				}
				id, ok := p.Evict(func(id ID) bool { return at[id] != int(up) })
				if !ok {
					break
				}
				victims = append(victims, id)
				delete(ids, at[id])
				free = append(free, id)
			}
			id := free[len(free)-1]
			free = free[:len(free)-1]
			ids[int(hash)], at[id] = id, int(hash)
			p.Add(id, Meta{Hash: hash, Parent: up, Size: 1})
			if up != 0 {
				p.Allow(ids[int(up)])
			}
		}
		after()
	}
	return victims
}

func TestTenureInvariants(t *testing.T) {
	for seed := range uint64(2) {
		p := newTenure()
		n := 0
		first := p.play(seed, 800, 300, func() {
			if n++; n%50 == 0 {
				p.check(t)
			}
		})
		again := newTenure()
		second := again.play(seed, 800, 300, func() {})
		if fmt.Sprint(first) != fmt.Sprint(second) || len(first) == 0 {
			t.Errorf("seed %d: two runs have other victims, or none", seed)
		}
		a, _ := p.MarshalBinary()
		b, _ := again.MarshalBinary()
		if !bytes.Equal(a, b) {
			t.Errorf("seed %d: two runs have learned other things", seed)
		}
		if p.learner.seen == 0 || p.chunks.known <= p.resident {
			t.Errorf("seed %d: nothing was learned, or there are no ghosts", seed)
		}
	}
}

// TestTenureSamples: however many chunks there are, so many are watched.
func TestTenureSamples(t *testing.T) {
	p := newTenure()
	chain := make([]uint64, 1000)
	for id := range uint64(3 * memory) {
		p.Add(ID(id), Meta{Hash: id + 1, Size: 1})
	}
	for i := range chain {
		chain[i] = uint64(i) + 1
	}
	p.Observe(Request{Chain: chain})
	if n := len(p.learner.watched); n > memory || n < memory/2 {
		t.Errorf("%d are watched", n)
	}
	if p.learner.seen == 0 || p.learner.seen > 500 {
		t.Errorf("%v of 1000 hits were seen", p.learner.seen)
	}
	p.check(t)
}

// TestTenureGhosts: there are as many ghosts as residents, where these are many.
func TestTenureGhosts(t *testing.T) {
	p, n := newTenure(), 2*newTenure().floor
	turnOver(p, n)
	if got := p.chunks.known; got < 2*n-1000 || got > 2*n {
		t.Errorf("%d known chunks, want about %d", got, 2*n)
	}
}

// turnOver fills a policy with n chunks in prompts of 1,000, and replaces them twice.
func turnOver(p *tenure, n int) {
	chain := make([]uint64, 1000)
	for next := range uint64(3 * n) {
		if at := next % 1000; at == 0 {
			for i := range chain {
				chain[i] = next + uint64(i) + 1
			}
			p.Observe(Request{Chain: chain})
		}
		id := ID(next)
		if next >= uint64(n) {
			id, _ = p.Evict(func(ID) bool { return true })
		}
		p.Add(id, Meta{Hash: next + 1, Size: 1})
	}
}

// BenchmarkTenureBytes reports the bytes a known chunk, residents and ghosts, all in.
func BenchmarkTenureBytes(b *testing.B) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	each := 0.0
	for b.Loop() {
		p := newTenure() // its tables are not per chunk
		before := heap()
		turnOver(p, 200_000)
		each = float64(heap()-before) / float64(p.chunks.known)
		runtime.KeepAlive(p)
	}
	b.ReportMetric(each, "bytes/chunk")
}

// With a bound, requests for chunks that are never stored leave no more ghosts than that.
func TestTenureBound(t *testing.T) {
	const most, length = 1000, 500
	p := newTenure()
	p.Bound(most)
	chain := make([]uint64, length)
	for next := uint64(0); next < 200*length; next += length {
		for i := range chain {
			chain[i] = next + uint64(i) + 1
		}
		p.Observe(Request{Chain: chain, ChunkTokens: 16})
		if p.chunks.known > most {
			t.Fatalf("%d ghosts, want at most %d", p.chunks.known, most)
		}
	}
	if p.chunks.known < most {
		t.Errorf("%d ghosts, want %d", p.chunks.known, most)
	}
	if n := int(p.chunks.records.Len()); n > most+length+1 {
		t.Errorf("memory for %d chunks was made", n)
	}
	p.check(t)
}

// Nor do chunks that are stored and go without ever being asked for.
func TestTenureBoundUnasked(t *testing.T) {
	const most, residents = 1000, 100
	p := newTenure()
	p.Bound(most)
	for next := range uint64(20_000) {
		id := ID(next)
		if next >= residents {
			id, _ = p.Evict(func(ID) bool { return true })
		}
		p.Add(id, Meta{Hash: next + 1, Size: 1})
		if p.chunks.known > most+residents {
			t.Fatalf("%d known chunks, want at most %d", p.chunks.known, most+residents)
		}
	}
	if p.chunks.known < most {
		t.Errorf("%d known chunks", p.chunks.known)
	}
	p.check(t)
}

func TestTenureTables(t *testing.T) {
	p := newTenure()
	p.play(1, 1000, 200, func() {})
	p.Observe(Request{Chain: []uint64{1}, Hint: Done})
	data, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	fresh := newTenure()
	if err := fresh.UnmarshalBinary(data); err != nil {
		t.Fatal(err)
	}
	again, _ := fresh.MarshalBinary()
	if !bytes.Equal(data, again) || fresh.learner.seen != p.learner.seen {
		t.Errorf("read back %v observations of %v", fresh.learner.seen, p.learner.seen)
	}
	for i := range data {
		bad := bytes.Clone(data)
		bad[i] ^= 4
		if fresh.UnmarshalBinary(bad) == nil {
			t.Fatalf("byte %d of %d damaged, and taken", i, len(data))
		}
		if i > 100 {
			break
		}
	}
	if fresh.UnmarshalBinary(data[:len(data)-1]) == nil || fresh.UnmarshalBinary(nil) == nil {
		t.Error("cut tables are taken")
	}
	if again, _ := fresh.MarshalBinary(); !bytes.Equal(data, again) {
		t.Error("bad tables have changed good ones")
	}
}

func FuzzTenureTables(f *testing.F) {
	p := newTenure()
	data, _ := p.MarshalBinary()
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		p := newTenure()
		if p.UnmarshalBinary(data) == nil {
			if again, _ := p.MarshalBinary(); !bytes.Equal(data, again) {
				t.Error("tables change on the way")
			}
		}
	})
}

// TestBinsByHand: half octaves from 32,768 tokens on.
func TestBinsByHand(t *testing.T) {
	for age, want := range map[int64]int{
		0: 0, 32767: 0, 32768: 1, 46340: 1, 46341: 2, 65535: 2, 65536: 3, 92681: 3, 92682: 4,
		1<<27 - 1: 24, 1 << 27: 25, 1 << 60: 25,
	} {
		if got := bin(age); got != want {
			t.Errorf("age %d is in bin %d, want %d", age, got, want)
		}
	}
}

// BenchmarkTenureEvict reports the p99 of one eviction among a million.
func BenchmarkTenureEvict(b *testing.B) {
	const n = 1_000_000
	p := newTenure()
	chain := make([]uint64, 50)
	next := uint64(1)
	add := func(id ID) {
		parent := uint64(0)
		if next%50 != 1 {
			parent = next - 1
		} else {
			for i := range chain {
				chain[i] = next + uint64(i)
			}
			p.Observe(Request{Chain: chain})
		}
		p.Add(id, Meta{Hash: next, Parent: parent, Size: 1})
		next++
	}
	for id := range ID(n) {
		add(id)
	}
	var buckets [100_001]int // by 10 ns
	for b.Loop() {
		start := b.Elapsed()
		id, ok := p.Evict(func(ID) bool { return true })
		took := b.Elapsed() - start
		if !ok {
			b.Fatal("nothing to evict")
		}
		buckets[min(int(took/10), len(buckets)-1)]++
		add(id)
	}
	seen := 0
	for i, count := range buckets {
		if seen += count; seen*100 >= b.N*99 {
			b.ReportMetric(float64(i*10), "ns/p99-evict")
			break
		}
	}
}

// TestDoneGoesFirst: before anything was learned, too.
func TestDoneGoesFirst(t *testing.T) {
	p := newTenure()
	id := ID(0)
	ask := func(h Hint, chain ...uint64) {
		p.Observe(Request{Chain: chain, ChunkTokens: 512, Hint: h, HintFrom: 1})
		for i, hash := range chain {
			parent := uint64(0)
			if i > 0 {
				parent = chain[i-1]
			}
			p.Add(id, Meta{Hash: hash, Parent: parent, Size: 1})
			id++
		}
	}
	ask(NoHint, 1, 2, 3)
	ask(Done, 10, 11, 12)
	ask(Continues, 20, 21, 22)
	ask(NoHint, 30, 31, 32)
	for _, want := range []ID{5, 4} { // the tail first, and not what was not meant
		if got, ok := p.Evict(func(ID) bool { return true }); !ok || got != want {
			t.Errorf("evicted %d, want %d", got, want)
		}
	}
}

// TestTenureTraining: learning in steps comes to what learning at once does.
func TestTenureTraining(t *testing.T) {
	p, later := newTenure(), newTenure()
	later.Defer()
	for id := range uint64(3 * sampleRound) {
		for _, p := range []*tenure{p, later} {
			p.Observe(Request{Chain: []uint64{id%3000 + 1}, Tokens: int(id%5) * 2000})
		}
		if id < 1000 && later.Training() != nil { // one is due, and there will be another
			later.deferred.Apply()
		}
	}
	training := later.Training()
	if training == nil || later.Training() != nil {
		t.Fatal("a training is due, once")
	}
	rounds := 1
	for training.Sample() {
		rounds++
	}
	if want := (len(later.learner.watched) + sampleRound - 1) / sampleRound; rounds != want {
		t.Errorf("%d rounds for %d chunks, want %d", rounds, len(later.learner.watched), want)
	}
	training.Fit()
	training.Apply()
	p.train()
	if p.cells.ranked != later.cells.ranked {
		t.Error("the ranking is another one")
	}
	if p.Due() || p.Training() != nil {
		t.Error("a policy that trains itself has a training due")
	}
}

// TestTenureTrainingWhileThinning: when only half as many are watched as when a
// training began, half of the reuses that it promises are to be expected.
func TestTenureTrainingWhileThinning(t *testing.T) {
	var whole float64
	for _, when := range []string{"never", "before looking", "in the midst", "before applying"} {
		p := newTenure()
		p.Defer()
		for id := range uint64(memory) {
			p.Add(ID(id), Meta{Hash: id + 1, Size: 1})
		}
		for !p.Due() {
			p.Observe(Request{Chain: []uint64{1}})
		}
		thin := func(now string) {
			if when == now {
				p.Add(memory, Meta{Hash: memory + 1, Size: 1})
			}
		}
		training := p.Training()
		thin("before looking")
		for n := 0; training.Sample(); n++ {
			if n == 9 {
				thin("in the midst")
			}
		}
		training.Fit()
		thin("before applying")
		training.Apply()
		p.check(t)
		if when == "never" {
			whole = p.trust.rate
			continue
		}
		if ratio := p.trust.rate / whole; p.learner.thin != 1 || !(ratio > 0.47 && ratio < 0.53) {
			t.Errorf("one of 2^%d is watched since %s: it promises %.3f of what it did", p.learner.thin, when, ratio)
		}
	}
}
