package policytest

import (
	"math/rand/v2"
	"testing"

	"github.com/kvstored/kvstored/policy"
)

// Capacity is what the policies under test are built with.
const Capacity = 64

// differ drives a policy and its model with the same calls and compares
// their victims.
type differ struct {
	t         testing.TB
	got, want policy.Policy
	ids       [2 * Capacity]struct {
		resident bool
		locked   bool
		meta     policy.Meta
		passed   bool // got refused it, and nothing has named it since
	}
	sizes     int64 // entries are of size 1 to sizes
	residents int
	weight    int64
	victims   int
}

// Differ runs a policy against its model, with entries of size 1 to sizes.
// source(n) chooses one of n, or is negative at the end; then everything is
// unlocked and evicted.
func Differ(t testing.TB, name string, sizes int64, source func(n int) int) {
	d := newDiffer(t, name)
	d.sizes = sizes
	for {
		op, id := source(16), source(len(d.ids))
		if op < 0 || id < 0 {
			break
		}
		d.step(op, policy.ID(id), source)
	}
	for id := range d.ids {
		d.unlock(policy.ID(id))
	}
	for d.residents > 0 {
		d.evict()
	}
	d.evict()
}

func newDiffer(t testing.TB, name string) *differ {
	t.Helper()
	got, err := policy.New(name, Capacity)
	if err != nil {
		t.Fatal(err)
	}
	model := models[name]
	if model == nil {
		t.Fatalf("policy %s has no reference model", name)
	}
	d := &differ{t: t, got: got, want: model(Capacity)}
	readMeta(got, func(id policy.ID) policy.Meta {
		if !d.ids[id].resident {
			t.Fatalf("asked what %d is, which is not resident", id)
		}
		return d.ids[id].meta
	})
	return d
}

func (d *differ) step(op int, id policy.ID, source func(n int) int) {
	e := &d.ids[id]
	switch {
	case op < 4:
		if !e.resident {
			// Few hashes, so that ghosts are met again.
			d.add(id, uint64(max(0, source(4*Capacity))))
		}
	case op < 8:
		if e.resident { // refused or not
			d.got.Touch(id)
			d.want.Touch(id)
			e.passed = false
		}
	case op < 9:
		got, renews := d.got.(policy.Renewer)
		want, should := d.want.(policy.Renewer)
		if renews != should {
			d.t.Fatalf("renews: %v; the model: %v", renews, should)
		}
		if renews && e.resident {
			got.Renew(id)
			want.Renew(id)
			e.passed = false
		}
	case op < 10:
		if e.resident {
			d.takeOut(id, source(2) == 1)
		}
	case op < 12:
		e.locked = true // without a word: only unlocking is announced
	case op < 14:
		d.unlock(id)
	default:
		d.evict()
	}
}

// takeOut removes id, or lets it leave if the policy tells the one from the other.
func (d *differ) takeOut(id policy.ID, leave bool) {
	got, leaves := d.got.(policy.Leaver)
	want, should := d.want.(policy.Leaver)
	if leaves != should {
		d.t.Fatalf("leaves: %v; the model: %v", leaves, should)
	}
	if leaves {
		if proven, should := got.Proven(id), want.Proven(id); proven != should {
			d.t.Fatalf("after %d victims: %d is proven: %v; the model: %v", d.victims, id, proven, should)
		}
	}
	if leave && leaves {
		got.Leave(id)
		want.Leave(id)
	} else {
		d.got.Remove(id)
		d.want.Remove(id)
	}
	d.forget(id)
}

func (d *differ) add(id policy.ID, hash uint64) {
	m := policy.Meta{Hash: hash, Size: 1 + int64(hash)%d.sizes}
	d.got.Miss(hash, m.Size)
	d.want.Miss(hash, m.Size)
	for d.weight+m.Size > Capacity {
		if !d.evict() {
			return
		}
	}
	e := &d.ids[id]
	e.resident, e.passed, e.meta = true, false, m
	d.got.Add(id, m)
	d.want.Add(id, m)
	d.residents++
	d.weight += m.Size
}

func (d *differ) unlock(id policy.ID) {
	e := &d.ids[id]
	e.locked = false
	if e.resident {
		d.got.Allow(id) // harmless if it was not refused
		d.want.Allow(id)
		e.passed = false
	}
}

func (d *differ) evict() bool {
	d.t.Helper()
	got, found := d.got.Evict(func(id policy.ID) bool {
		e := &d.ids[id]
		switch {
		case !e.resident:
			d.t.Fatalf("after %d victims: offered %d, which is not resident", d.victims, id)
		case e.passed:
			d.t.Fatalf("after %d victims: offered %d again, which was refused", d.victims, id)
		}
		e.passed = e.locked
		return !e.locked
	})
	want, exists := d.want.Evict(func(id policy.ID) bool { return !d.ids[id].locked })
	if got != want || found != exists {
		d.t.Fatalf("after %d victims: evicted %d, %v; the model evicts %d, %v", d.victims, got, found, want, exists)
	}
	if found {
		d.victims++
		d.forget(got)
	}
	return found
}

func (d *differ) forget(id policy.ID) {
	e := &d.ids[id]
	e.resident, e.passed = false, false
	d.residents--
	d.weight -= e.meta.Size
}

// Seeded is a source of n operations. It is of changing temper: there are
// times of much locking, of much eviction, of many hits.
func Seeded(seed uint64, n int) func(int) int {
	r := rand.New(rand.NewPCG(seed, 0))
	mood := 0
	return func(k int) int {
		if k != 16 { // an argument
			return r.IntN(k)
		}
		if n--; n < 0 {
			return -1
		}
		if n%1000 == 0 {
			mood = r.IntN(16)
		}
		if r.IntN(4) == 0 {
			return mood
		}
		return r.IntN(k)
	}
}

// Bytes is a source that reads a fuzzer's input.
func Bytes(data []byte) func(int) int {
	return func(k int) int {
		if len(data) == 0 {
			return -1
		}
		b := data[0]
		data = data[1:]
		return int(b) % k
	}
}
