package ledger_test

import (
	"cmp"
	"errors"
	"slices"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

func (r *rig) begin() {
	ks, h := r.path(), r.holder()
	k, parent := ks[len(ks)-1], key.Hash{}
	if len(ks) > 1 {
		parent = ks[len(ks)-2].Hash
	}
	if r.source(8) == 0 { // an engine that contradicts itself
		parent = r.path()[0].Hash
		if r.source(2) == 0 {
			p := r.path()
			parent = p[len(p)-1].Hash
		}
	}
	r.fill(h, k, parent, uint32(1+max(0, r.source(3*page))))
}

func (r *rig) fill(h holder, k key.Key, parent key.Hash, size uint32) {
	id, state, err := r.real.Begin(h.o, h.c, k, parent, size)
	before := r.model.live[k]
	want, wantErr := r.model.begin(h, k, parent, size)
	r.same("Begin", err, wantErr)
	if state != want {
		r.t.Fatalf("Begin: state %v, want %v", state, want)
	}
	if e := r.model.live[k]; err == nil && before == nil {
		e.entry.ID = id
		e.entry.Value = ledger.Value{A: uint64(id), B: uint64(size)}
		r.real.SetValue(id, e.entry.Value)
	} else if before != nil && before.entry.ID != id {
		r.t.Fatalf("Begin: ID %d, want %d", id, before.entry.ID)
	}
}

// fills returns the filling entries on the path to one of them.
func (r *rig) fills() (es []*body, ids []ledger.ID) {
	var all []*body
	for _, e := range r.model.live {
		if e.state == ledger.Filling {
			all = append(all, e)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	slices.SortFunc(all, func(a, b *body) int { return cmp.Compare(a.entry.ID, b.entry.ID) })
	for _, k := range pathTo(all[max(0, r.source(len(all)))].entry.Key) {
		// The parents make the chain, not the path.
		e := r.model.live[k]
		if e != nil && e.state == ledger.Filling && (len(es) == 0 || r.below(e, es[len(es)-1])) {
			es, ids = append(es, e), append(ids, e.entry.ID)
		}
	}
	return es, ids
}

func (r *rig) below(e, top *body) bool {
	for n := 0; e != nil && n < 64; n, e = n+1, r.model.up(e) {
		if e == top {
			return true
		}
	}
	return false
}

func (r *rig) publish() {
	es, ids := r.fills()
	dirty, h := r.source(2) == 0, r.holder()
	if len(es) == 0 {
		return
	}
	if r.source(2) == 0 {
		r.real.Publish(ids, dirty)
		r.model.publish(es, dirty, nil)
		return
	}
	n, err := r.real.PublishHeld(h.o, h.c, ids, dirty)
	want, wantErr := r.model.publish(es, dirty, &h)
	r.same("PublishHeld", err, wantErr)
	if n != want {
		r.t.Fatalf("PublishHeld: %d, want %d", n, want)
	}
	for _, e := range es[:n] {
		r.held = append(r.held, held{h, e})
	}
}

// pass tells that a prompt has come by down to some chunk. Mostly a tier below has it.
func (r *rig) pass() {
	ks := r.path()
	var hs []key.Hash
	var es []*body
	for _, k := range ks {
		if hs = append(hs, k.Hash); r.source(4) > 0 {
			r.storeAt(k, 1, true)
		}
		if e := r.model.live[k]; e != nil && e.state == ledger.Resident && !r.real.Planning().Plans() {
			es = append(es, e)
		}
	}
	r.real.DropBehind(ks[0].Space, hs)
	r.model.pass(es)
}

// passBy stores chunks below resident ones, one prompt after the other, and takes them away
// again, mostly: what remains is that their ancestors are as young as they would be.
func (r *rig) passBy() {
	var es []*body
	for range 1 + max(0, r.source(3)) {
		if e := r.beginBelow(r.path()); e != nil {
			es = append(es, e)
		}
	}
	for _, e := range es {
		r.real.Publish([]ledger.ID{e.entry.ID}, false)
		r.model.publish([]*body{e}, false, nil)
	}
	if r.source(4) > 0 {
		for _, e := range es {
			r.removeAt(e.entry.Key)
		}
	}
}

// beginBelow begins the first chunk of a path that is not there, if that hangs on a resident
// one and is not refused.
func (r *rig) beginBelow(ks []key.Key) *body {
	i := slices.IndexFunc(ks, func(k key.Key) bool { return r.model.live[k] == nil })
	if i < 1 || r.model.live[ks[i-1]].state != ledger.Resident {
		return nil
	}
	r.fill(holder{ledger.Daemon, ledger.IO}, ks[i], ks[i-1].Hash, 1)
	return r.model.live[ks[i]]
}

func (r *rig) abort() {
	es, ids := r.fills()
	if len(es) > 0 {
		r.real.Abort(ids[0])
		r.model.unlink(es[0])
		delete(r.model.live, es[0].entry.Key)
	}
}

func (r *rig) hold() {
	ks, h, touch := r.path(), r.holder(), r.source(2) == 0
	out := make([]ledger.Entry, len(ks))
	n, err := r.real.Hold(h.o, h.c, ks, out)
	var es []*body
	var wantErr error
	for _, k := range ks {
		e := r.model.live[k]
		if e == nil || e.state != ledger.Resident {
			break
		}
		if wantErr = r.model.hold(h, e); wantErr != nil {
			break
		}
		es = append(es, e)
	}
	r.same("Hold", err, wantErr)
	if n != len(es) {
		r.t.Fatalf("Hold: %d, want %d", n, len(es))
	}
	for i, e := range es {
		if known(out[i]) != e.entry {
			r.t.Fatalf("Hold: entry %+v, want %+v", out[i], e.entry)
		}
		r.held = append(r.held, held{h, e})
	}
	if touch {
		r.real.Touch(ks[:n])
		if n > 0 { // else it leaves what a publish has left, too
			r.model.touch(es)
		}
	}
}

func (r *rig) unhold() {
	for range 4 {
		if len(r.held) == 0 {
			return
		}
		i := max(0, r.source(len(r.held)))
		h := r.held[i]
		r.held = slices.Delete(r.held, i, i+1)
		r.real.Unhold(h.o, h.c, []ledger.ID{h.e.entry.ID})
		h.e.unhold(h.holder)
	}
}

func (r *rig) touch() {
	ks := r.path()
	r.real.Touch(ks)
	var es []*body
	for _, k := range ks {
		if e := r.model.live[k]; e != nil && e.state == ledger.Resident {
			es = append(es, e)
		}
	}
	r.model.touch(es)
}

// evict makes room, as much as some chunks need.
func (r *rig) evict() {
	for n := max(0, r.source(4)); r.evictOne() && n > 0; n-- {
	}
}

// evictOne reports whether something went.
func (r *rig) evictOne() bool {
	evict, safely := r.real.Evict, r.source(2) == 0
	if safely {
		evict = r.real.EvictSafely
		if r.source(2) == 0 {
			defer r.fillWriters()()
		}
	}
	got, ok := evict()
	charged := got.Charged
	if got.Charged = false; charged { // as one who has written it at once
		r.real.Uncharge(ledger.Daemon, ledger.Unwritten, occupied(got.Size))
	}
	r.model.trust(got, ok)
	want := r.model.evict(r.model.all, got, safely)
	switch {
	case ok != (want != nil):
		r.t.Fatalf("Evict: %+v, %v; want %+v", got, ok, want)
	case ok && known(got) != want.entry:
		r.t.Fatalf("Evict: %+v, want %+v", got, want.entry)
	case ok && charged != want.charged:
		r.t.Fatalf("Evict: %+v is charged: %v, want %v", got, charged, want.charged)
	case ok:
		r.evicts++
		if got.Hits == 0 {
			r.unused++
		}
	}
	return ok
}

// fillWriters leaves those who write no room for more, until the result is called.
func (r *rig) fillWriters() (empty func()) {
	h, n := holder{ledger.Daemon, ledger.Unwritten}, r.model.limits.Unwritten-r.model.class(ledger.Unwritten)
	if n <= 0 {
		return func() {}
	}
	sum := r.model.owners[h.o]
	err := r.real.Charge(h.o, h.c, n)
	r.same("Charge", err, r.model.try(h, func() { sum[h.c] += n }, func() { sum[h.c] -= n }))
	if err != nil {
		return func() {}
	}
	return func() {
		r.real.Uncharge(h.o, h.c, n)
		sum[h.c] -= n
	}
}

// evictOwn does what a fill of the second space would.
func (r *rig) evictOwn() {
	safely := r.source(2) == 0
	if r.source(2) == 0 {
		defer r.fillWriters()()
	}
	for _, e := range r.model.live {
		if e.state != ledger.Filling || e.entry.Key.Space[3] != 1 {
			continue
		}
		got, ok, err := r.real.EvictOwn(e.entry.ID, safely)
		want := r.quotaVictim(got, ok, safely)
		if r.same("EvictOwn", err, want); errors.Is(want, ledger.ErrOverQuota) {
			r.model.refused++
		}
		return
	}
	got, ok := r.real.EvictOver()
	_ = r.quotaVictim(got, ok, true)
}

// quotaVictim compares a victim of the quota with the model's. Without one it says why a
// fill has none.
func (r *rig) quotaVictim(got ledger.Entry, ok, safely bool) error {
	r.t.Helper()
	if r.model.own == nil || r.model.quotaUsed() <= quotaPages*page {
		if ok {
			r.t.Fatalf("EvictOwn: %+v, and no quota is exceeded", got)
		}
		return nil
	}
	charged := got.Charged
	if got.Charged = false; charged {
		r.real.Uncharge(ledger.Daemon, ledger.Unwritten, occupied(got.Size))
	}
	busy := safely && r.model.anyLost()
	r.model.trust(got, ok)
	want := r.model.evict(r.model.own, got, safely)
	switch {
	case ok != (want != nil), ok && known(got) != want.entry, ok && charged != want.charged:
		r.t.Fatalf("EvictOwn: %+v, %v; want %v", got, ok, want)
	case ok:
		r.evicts++
		if got.Hits == 0 {
			r.unused++
		}
	case busy:
		return ledger.ErrBusy
	default:
		return ledger.ErrOverQuota
	}
	return nil
}

func (r *rig) assign() {
	r.real.Tuning().Assign(key.SpaceID{3: 1}, 0)
	r.model.assign(r.name)
}

// announce tells of a request, which may have a chunk twice.
func (r *rig) announce() {
	ks := r.path()
	if r.source(16) == 0 {
		ks = append(ks, ks[max(0, r.source(len(ks)))])
	}
	x := ledger.Request{Space: ks[0].Space, ChunkTokens: 4096, Tokens: 4096 * len(ks)}
	if r.source(4) == 0 {
		x.Advice = r.source(2) == 0
		x.Hint, x.HintFrom = policy.Hint(max(0, r.source(3))), max(0, r.source(len(ks)))
	}
	for _, k := range ks {
		x.Hashes = append(x.Hashes, k.Hash)
	}
	r.real.Planning().Observe(&x)
	room := max(0, r.source(4))
	least := min(room, len(ks)-1)
	if r.model.owns(ks[0]) {
		least = max(0, min(least, int((quotaPages*page-r.model.quotaUsed())/page)))
	}
	got := r.real.Planning().Admit(x.Space, ks[0].Hash, x.Hashes[1:], page, room, r.source(2) == 0)
	if got < least || got > len(ks)-1 || !r.real.Planning().Plans() && got < len(ks)-1 {
		r.t.Fatalf("%d of %d chunks are worth storing, with room for %d", got, len(ks)-1, room)
	}
}

// cool lets a path go first; the model follows from then on.
func (r *rig) cool() {
	ks := r.path()
	var hs []key.Hash
	for _, k := range ks {
		hs = append(hs, k.Hash)
	}
	r.real.MarkCold(ks[0].Space, hs)
	r.model.trustAll()
}

// known is of an entry what the model knows: not whether it goes first, which Check counts.
func known(e ledger.Entry) ledger.Entry {
	e.Cold = false
	return e
}

// claim claims the chunks of a path, or does not any more.
func (r *rig) claim() {
	ks := r.path()
	hs, claimed := make([]key.Hash, len(ks)), make([]bool, len(ks))
	for i, k := range ks {
		hs[i], claimed[i] = k.Hash, r.source(7) > 2
		if e := r.model.live[k]; e != nil && e.state == ledger.Resident {
			r.model.claim(e, claimed[i])
		}
	}
	ledger.Claim(r.real, ks[0].Space, hs, claimed)
}

// turn replaces the policy.
func (r *rig) turn() {
	names := policy.All()
	r.name = names[max(0, r.source(len(names)))]
	if err := r.real.Tuning().SetPolicy(r.name); err != nil {
		r.t.Fatal(err)
	}
	r.model.setPolicy(r.name)
}

func (r *rig) remove() {
	ks := r.path()
	r.removeAt(ks[len(ks)-1])
}

func (r *rig) removeAt(k key.Key) {
	got, ok := r.real.Remove(k)
	e := r.model.live[k]
	if ok != (e != nil && e.state == ledger.Resident) || ok && known(got) != e.entry {
		r.t.Fatalf("Remove: %+v, %v; want %+v", got, ok, e)
	}
	if ok {
		r.model.renewPending()
		r.model.ranking.remove(e)
		r.model.endResidency(e)
	}
}

// free frees the first of what has left, and mostly more.
func (r *rig) free() {
	n := 1 + max(0, r.source(8))
	for _, e := range r.model.dead {
		if !e.freed && n > 0 {
			r.real.Free(e.entry.ID)
			e.freed = true
			n--
		}
	}
}

func (r *rig) owner() {
	if len(r.owners) < 4 {
		o := r.real.NewOwner()
		r.owners = append(r.owners, o)
		r.model.owners[o] = map[ledger.Class]int64{}
		return
	}
	for i, o := range r.owners[1:] {
		if sum := r.model.owners[o]; sum[ledger.Pin]+sum[ledger.Lease] == 0 && !r.holds(o) {
			r.real.CloseOwner(o)
			r.owners = slices.Delete(r.owners, i+1, i+2)
			delete(r.model.owners, o)
			return
		}
	}
}

func (r *rig) holds(o ledger.Owner) bool {
	for e := range r.model.bodies {
		for h := range e.holds {
			if h.o == o {
				return true
			}
		}
	}
	return false
}

func (r *rig) charge() {
	h := r.holder()
	h.c %= 2
	sum := r.model.owners[h.o]
	if n := sum[h.c]; n > 0 {
		r.real.Uncharge(h.o, h.c, n)
		sum[h.c] = 0
		return
	}
	const n = 3 * page
	err := r.real.Charge(h.o, h.c, n)
	r.same("Charge", err, r.model.try(h, func() { sum[h.c] += n }, func() { sum[h.c] -= n }))
}

func (r *rig) restore() {
	ks := r.path()
	k, parent := ks[len(ks)-1], key.Hash{}
	if len(ks) > 1 {
		parent = ks[len(ks)-2].Hash
	}
	claimed := parent
	if r.model.cyclic(k, parent) {
		parent = key.Hash{}
	}
	e := &body{entry: ledger.Entry{Key: k, Parent: parent, Size: 100, Dirty: true}, parent: parent, state: ledger.Resident, holds: map[holder]int{}}
	id, ok := r.real.Restore(e.entry, claimed)
	want := r.model.live[k] == nil &&
		!slices.ContainsFunc(r.model.dead, func(e *body) bool { return e.undead && e.entry.Key == k }) && !r.model.full(e)
	if ok != want {
		r.t.Fatalf("Restore: %v, want %v", ok, want)
	}
	if ok {
		e.entry.ID = id
		r.model.renewPending()
		r.model.live[k] = e
		r.model.add(e)
	}
}

func (r *rig) mark() {
	if len(r.held) > 0 {
		e := r.held[0].e
		e.entry.Dirty = !e.entry.Dirty
		r.real.SetDirty(e.entry.ID, e.entry.Dirty)
	}
}

// store says which tiers below have a key, and which of them work.
func (r *rig) store() {
	ks := r.path()
	r.storeAt(ks[len(ks)-1], ledger.Below(1+max(0, r.source(3))), r.source(4) > 0)
	r.seldom(func() { r.model.works = ledger.Below(max(0, r.source(4))) })
}

func (r *rig) storeAt(k key.Key, tiers ledger.Below, have bool) {
	r.real.SetBelow(k, tiers, have)
	if e := r.model.live[k]; e != nil && e.state == ledger.Resident {
		if e.entry.Below &^= tiers; have {
			e.entry.Below |= tiers
		}
	}
}

func (r *rig) look() {
	ks := r.path()
	have := make([]bool, len(ks))
	r.real.Lookup(ks, have)
	for i, k := range ks {
		e := r.model.live[k]
		got, state := r.real.Find(k)
		switch {
		case have[i] != (e != nil && e.state == ledger.Resident):
			r.t.Fatalf("Lookup: %v of %+v", have[i], e)
		case e == nil && state != ledger.Absent:
			r.t.Fatalf("Find: %v of nothing", state)
		case e != nil && (state != e.state || known(got) != e.entry):
			r.t.Fatalf("Find: %+v, %v; want %+v", got, state, e)
		}
	}
}

// drain gives everything back; nothing may remain.
func (r *rig) drain() {
	for len(r.held) > 0 {
		r.unhold()
	}
	for _, e := range r.model.live {
		if e.state == ledger.Filling {
			r.real.Abort(e.entry.ID)
			r.model.unlink(e)
			delete(r.model.live, e.entry.Key)
		}
	}
	for _, o := range r.owners {
		for c, n := range r.model.owners[o] {
			if n > 0 {
				r.real.Uncharge(o, c, n)
			}
		}
		clear(r.model.owners[o])
	}
	for len(r.model.live) > 0 {
		r.evict()
	}
	for range slices.Clone(r.model.dead) {
		r.free()
	}
	r.compare()
	if s := r.real.Stats(); s.UsedBytes != 0 || s.Holes != 0 || s.Filling != 0 {
		r.t.Fatalf("something remains: %+v", s)
	}
}
