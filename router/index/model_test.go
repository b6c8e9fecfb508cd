package index

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var operations = flag.Int("ops", 2000, "operations of each random history of TestAgainstSets")

const (
	testTokens = 2 // in a block
	testDepth  = 14
	testMedia  = 3 // that histories use
)

// node is a block as plain sets have it, named by its tokens.
type node struct {
	parent   *node
	children [3]*node
	depth    int
	key      uint64
	path     string
	own      []mask // by worker and group
	alive    int    // blocks from here on that a worker has
	alias    map[string]uint64
}

// plain is the model: what each worker was said to have, block by block.
type plain struct {
	root    *node
	groups  int
	kinds   []Group
	schemes []string // of workers
	names   map[string]map[uint64]*node
}

func newPlain(workers int, groups []Group) *plain {
	p := &plain{groups: len(groups), kinds: groups, names: make(map[string]map[uint64]*node)}
	p.root = &node{own: make([]mask, workers*len(groups)), alive: 1}
	for w := range workers {
		scheme := "shared"
		if w%2 == 1 {
			scheme = fmt.Sprint("own ", w)
		}
		p.schemes = append(p.schemes, scheme)
		p.names[scheme] = make(map[uint64]*node)
	}
	return p
}

func tokensOf(choice int) []uint32 { return []uint32{uint32(choice), 7} }

func (p *plain) child(n *node, choice int) *node {
	if c := n.children[choice]; c != nil {
		return c
	}
	parent := Root
	if n.depth > 0 {
		parent = After(n.key)
	}
	c := &node{parent: n, depth: n.depth + 1, path: n.path + fmt.Sprint(choice), own: make([]mask, len(p.root.own)), alias: make(map[string]uint64)}
	c.key = testHash.next(parent, tokensOf(choice), 0, len(tokensOf(choice)))
	n.children[choice] = c
	return c
}

var testHash = DynamoHash("", "")

// engineHash is how a worker's engine calls a block.
func (p *plain) engineHash(worker int, n *node) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, p.schemes[worker], n.path)
	return h.Sum64()
}

func (p *plain) has(n *node, worker int) bool {
	for g := range p.groups {
		if n.own[worker*p.groups+g] != 0 {
			return true
		}
	}
	return false
}

func anyone(n *node) bool { return slices.ContainsFunc(n.own, func(m mask) bool { return m != 0 }) }

// set changes what a worker has of a block.
func (p *plain) set(n *node, worker, group int, m mask) {
	before := anyone(n)
	n.own[worker*p.groups+group] = m
	step := 0
	switch after := anyone(n); {
	case after && !before:
		step = 1
	case before && !after:
		step = -1
	}
	for a := n; a != nil && step != 0; a = a.parent {
		a.alive += step
	}
	scheme := p.schemes[worker]
	if hash, named := n.alias[scheme]; named {
		for w, s := range p.schemes {
			if s == scheme && p.has(n, w) {
				return
			}
		}
		delete(n.alias, scheme)
		delete(p.names[scheme], hash)
	}
}

// find is the definition of a Match.
func (p *plain) find(worker int, chain []*node) (blocks [Media]int32) {
	for m := range Media {
		near := mask(1<<(m+1) - 1)
		for depth := len(chain); depth > 0 && blocks[m] == 0; depth-- {
			all := true
			for i, n := range chain[:depth] {
				for g := range p.groups {
					all = all && (n.own[worker*p.groups+g]&near != 0 || !p.needs(g, i, depth))
				}
			}
			if all {
				blocks[m] = int32(depth)
			}
		}
	}
	return blocks
}

// needs reports whether a prefix of n blocks needs block i of a group, token by token.
func (p *plain) needs(group, i, n int) bool {
	g := p.kinds[group]
	for token := i * testTokens; token < (i+1)*testTokens; token++ {
		switch end := n * testTokens; g.Kind {
		case Full:
			return true
		case Window:
			if token >= end-g.Tokens {
				return true
			}
		case Local:
			if end%g.Tokens != 0 && token/g.Tokens == end/g.Tokens {
				return true
			}
		case State:
			return i == n-1
		}
	}
	return false
}

// history is one random history against index and model.
type history struct {
	t       *testing.T
	rnd     *rand.Rand
	x       *Index
	s       *Shard
	p       *plain
	workers int
	gone    map[int]bool
	now     time.Time
	said    map[saidKey]time.Time // claims of workers with a time to live
	matches []Match
	found   int
}

type saidKey struct {
	n      *node
	worker int
	group  int
	medium Medium
}

// ttlWorker is the first worker: it has a time to live.
const ttlWorker, ttl = 0, 30 * time.Second

func newHistory(t *testing.T, seed uint64, workers int, groups []Group) *history {
	h := &history{
		t: t, rnd: rand.New(rand.NewPCG(seed, 1)), p: newPlain(workers, groups), workers: workers,
		gone: make(map[int]bool), now: time.Unix(1e9, 0), said: make(map[saidKey]time.Time),
	}
	x, err := New(Options{Now: func() time.Time { return h.now }})
	if err != nil {
		t.Fatal(err)
	}
	h.x = x
	for w := range workers {
		h.register(w)
	}
	if h.s, err = x.Open(Name{Model: "m"}, Config{BlockTokens: testTokens, Groups: groups, Hash: testHash}); err != nil {
		t.Fatal(err)
	}
	return h
}

func worker(w int) Worker { return Worker{ID: fmt.Sprint("worker ", w/2), Rank: uint32(w % 2)} }

func (h *history) register(w int) {
	h.t.Helper()
	o := WorkerOptions{}
	if h.p.schemes[w] == "shared" {
		o.Scheme = "shared"
	}
	if w == ttlWorker {
		o.TTL = ttl
	}
	if err := h.x.Register(worker(w), o); err != nil {
		h.t.Fatal(err)
	}
}

// chain returns a random chain; first choices are the likeliest.
func (h *history) chain(from *node, length int) []*node {
	var all []*node
	for n := from; len(all) < length && n.depth < testDepth; {
		n = h.p.child(n, []int{0, 0, 0, 1, 1, 2}[h.rnd.IntN(6)])
		all = append(all, n)
	}
	return all
}

func (h *history) at() (At, int) {
	w := h.rnd.IntN(h.workers)
	group, medium := h.rnd.IntN(h.p.groups), Medium(0)
	if h.rnd.IntN(3) == 0 {
		medium = Medium(h.rnd.IntN(testMedia))
	}
	return At{worker(w), group, medium}, w
}

// want checks an error against what the model expects.
func (h *history) want(op string, got, want error) {
	h.t.Helper()
	if !errors.Is(got, want) {
		h.t.Fatalf("%s: %v, want %v", op, got, want)
	}
}

func (h *history) hold(n *node, at At, w int) {
	i := w*h.p.groups + at.Group
	h.p.set(n, w, at.Group, n.own[i]|1<<at.Medium)
	if w == ttlWorker {
		h.said[saidKey{n, w, at.Group, at.Medium}] = h.now
	}
}

func (h *history) lose(n *node, at At, w int) (had bool) {
	i := w*h.p.groups + at.Group
	had = n.own[i]&(1<<at.Medium) != 0
	h.p.set(n, w, at.Group, n.own[i]&^(1<<at.Medium))
	delete(h.said, saidKey{n, w, at.Group, at.Medium})
	return had
}

func keys(chain []*node) []uint64 {
	all := make([]uint64, len(chain))
	for i, n := range chain {
		all[i] = n.key
	}
	return all
}

// start picks a parent: the root, or a block of a random chain.
func (h *history) start() *node {
	if h.rnd.IntN(3) > 0 {
		return h.p.root
	}
	chain := h.chain(h.p.root, 1+h.rnd.IntN(testDepth-1))
	return chain[len(chain)-1]
}

func parentOf(n *node, hash uint64) Parent {
	if n.depth == 0 {
		return Root
	}
	return After(hash)
}

func (h *history) store() {
	at, w := h.at()
	from := h.start()
	chain := h.chain(from, 1+h.rnd.IntN(8))
	n, err := h.s.Store(at, parentOf(from, from.key), keys(chain))
	switch {
	case h.gone[w]:
		h.want("store", err, ErrUnknownWorker)
	case from.alive == 0:
		h.want("store", err, ErrUnknownParent)
	case err != nil || n != len(chain):
		h.t.Fatalf("store: %d of %d, %v", n, len(chain), err)
	default:
		for _, n := range chain {
			h.hold(n, at, w)
		}
	}
}

func (h *history) announce() {
	at, w := h.at()
	from := h.start()
	hash := h.p.engineHash(w, from)
	chain := h.chain(from, 1+h.rnd.IntN(8))
	a := Announcement{Parent: parentOf(from, hash), BlockTokens: testTokens}
	for _, n := range chain {
		a.Hashes = append(a.Hashes, h.p.engineHash(w, n))
		a.Tokens = append(a.Tokens, tokensOf(int(n.path[len(n.path)-1]-'0'))...)
	}
	known := from.depth == 0 || h.p.names[h.p.schemes[w]][hash] != nil
	n, err := h.s.Announce(at, a)
	switch {
	case h.gone[w]:
		h.want("announce", err, ErrUnknownWorker)
	case !known:
		h.want("announce", err, ErrUnknownParent)
	case err != nil || n != len(chain):
		h.t.Fatalf("announce: %d of %d, %v", n, len(chain), err)
	default:
		for i, n := range chain {
			n.alias[h.p.schemes[w]] = a.Hashes[i]
			h.p.names[h.p.schemes[w]][a.Hashes[i]] = n
			h.hold(n, at, w)
		}
	}
}

// remove takes some blocks of a chain: from its end, in the middle, or all.
func (h *history) remove() {
	at, w := h.at()
	chain := h.chain(h.p.root, testDepth)
	i := h.rnd.IntN(len(chain))
	j := i + 1 + h.rnd.IntN(len(chain)-i)
	chain = chain[i:j]
	h.rnd.Shuffle(len(chain), func(i, j int) { chain[i], chain[j] = chain[j], chain[i] })
	byEngine := h.rnd.IntN(2) == 0
	var unknown int
	var err error
	if byEngine {
		hashes := make([]uint64, len(chain))
		for i, n := range chain {
			hashes[i] = h.p.engineHash(w, n)
		}
		unknown, err = h.s.Withdraw(at, hashes)
	} else {
		unknown, err = h.s.Remove(at, keys(chain))
	}
	if h.gone[w] {
		h.want("remove", err, ErrUnknownWorker)
		return
	}
	want := 0
	for _, n := range chain {
		if byEngine && h.p.names[h.p.schemes[w]][h.p.engineHash(w, n)] == nil || !h.lose(n, at, w) {
			want++
		}
	}
	if err != nil || unknown != want {
		h.t.Fatalf("remove: %d unknown, %v; want %d", unknown, err, want)
	}
}

func (h *history) add() {
	at, w := h.at()
	chain := h.chain(h.p.root, testDepth)
	hashes := make([]uint64, len(chain))
	want := 0
	for i, n := range chain {
		hashes[i] = h.p.engineHash(w, n)
		if h.p.names[h.p.schemes[w]][hashes[i]] == nil {
			want++
		}
	}
	unknown, err := h.s.Add(at, hashes)
	if h.gone[w] {
		h.want("add", err, ErrUnknownWorker)
		return
	}
	if err != nil || unknown != want {
		h.t.Fatalf("add: %d unknown, %v; want %d", unknown, err, want)
	}
	for i, n := range chain {
		if h.p.names[h.p.schemes[w]][hashes[i]] != nil {
			h.hold(n, at, w)
		}
	}
}

func (h *history) query() {
	chain := h.chain(h.p.root, 1+h.rnd.IntN(testDepth))
	h.matches = h.s.Find(h.matches[:0], keys(chain), FindOptions{})
	h.compare(chain, h.matches, false)
	var tokens []uint32
	for _, n := range chain {
		tokens = append(tokens, tokensOf(int(n.path[len(n.path)-1]-'0'))...)
	}
	early, err := h.s.FindTokens(nil, append(tokens, 1), FindOptions{EarlyExit: true})
	if err != nil {
		h.t.Fatal(err)
	}
	h.compare(chain, early, true)
}

func (h *history) compare(chain []*node, matches []Match, early bool) {
	h.t.Helper()
	i := 0
	for _, who := range h.x.Workers() {
		w := h.number(who)
		want := h.p.find(w, chain)
		if want[Shared] == 0 {
			continue
		}
		h.found++
		if i == len(matches) || matches[i].Worker != who {
			h.t.Fatalf("%s at place %d is not found in %v, want %v", who, i, matches, want)
		}
		m := matches[i]
		i++
		if early && m.AtLeast {
			for medium := range m.Blocks {
				want[medium] = min(want[medium], m.Blocks[medium])
			}
			if len(matches) > 1 && slices.ContainsFunc(matches, func(o Match) bool { return o.Usable > m.Usable }) {
				h.t.Fatalf("%v is left, and has less than others: %v", m, matches)
			}
		}
		if m.Blocks != want || m.Usable != testTokens*int(want[Shared]) {
			h.t.Fatalf("%s: %v, want %v", who, m, want)
		}
	}
	if i != len(matches) {
		h.t.Fatalf("%d matches, want %d", len(matches), i)
	}
}

func (h *history) number(who Worker) int {
	var w int
	_, _ = fmt.Sscanf(who.ID, "worker %d", &w)
	return 2*w + int(who.Rank)
}

func (h *history) each(visit func(*node)) {
	var walk func(*node)
	walk = func(n *node) {
		for _, c := range n.children {
			if c != nil && c.alive > 0 {
				visit(c)
				walk(c)
			}
		}
	}
	walk(h.p.root)
}

func (h *history) forget(w int, media mask) {
	h.each(func(n *node) {
		for g := range h.p.groups {
			for m := range Medium(Media) {
				if media&(1<<m) != 0 && n.own[w*h.p.groups+g] != 0 {
					h.lose(n, At{Group: g, Medium: m}, w)
				}
			}
		}
	})
}

// upset is a rare event: a worker restarts, goes or comes, time passes, the
// index is packed anew.
func (h *history) upset() {
	w := h.rnd.IntN(h.workers)
	switch h.rnd.IntN(4) {
	case 0:
		err := h.x.Clear(worker(w))
		if h.gone[w] {
			h.want("clear", err, ErrUnknownWorker)
			return
		}
		h.want("clear", err, nil)
		h.forget(w, allMedia)
	case 1:
		if h.gone[w] {
			h.register(w)
			h.gone[w] = false
			return
		}
		h.want("unregister", h.x.Unregister(worker(w)), nil)
		h.gone[w] = true
		h.forget(w, allMedia)
	case 2:
		h.now = h.now.Add(time.Duration(h.rnd.IntN(20)) * time.Second)
		h.expire()
	case 3:
		h.s.mu.Lock()
		h.s.tree.Store(h.s.tree.Load().repacked())
		h.s.settle()
		h.s.mu.Unlock()
	}
}

func (h *history) expire() {
	want := 0
	for k, said := range h.said {
		if h.now.Sub(said) >= ttl {
			want++
			h.lose(k.n, At{Group: k.group, Medium: k.medium}, k.worker)
		}
	}
	if got := h.x.Expire(); got != want {
		h.t.Fatalf("%d claims expired, want %d", got, want)
	}
}

func (h *history) run(n int) {
	for i := range n {
		switch r := h.rnd.IntN(100); {
		case r < 18:
			h.store()
		case r < 34:
			h.announce()
		case r < 54:
			h.remove()
		case r < 58:
			h.add()
		case r < 99 || i%4 > 0:
			h.query()
		default:
			h.upset()
		}
		if i%(n/20+1) == 0 {
			check(h.t, h.s)
		}
	}
	check(h.t, h.s)
}

// TestAgainstSets compares every answer with that of plain sets.
func TestAgainstSets(t *testing.T) {
	hybrid := []Group{{}, {Window, 5}, {State, 0}}
	local := []Group{{Local, 6}, {}, {Window, 3}, {}}
	for _, c := range []struct {
		workers int
		groups  []Group
	}{{1, make([]Group, 1)}, {3, make([]Group, 1)}, {5, make([]Group, 2)}, {64, make([]Group, 1)}, {300, make([]Group, 1)}, {2, hybrid}, {3, local}} {
		t.Run(fmt.Sprintf("%d workers, groups %v", c.workers, c.groups), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, uint64(c.workers), c.workers, c.groups)
			h.run(*operations)
			if h.found == 0 {
				t.Fatal("no query found anything")
			}
			t.Logf("%d answers of workers compared; %+v", h.found, h.x.Stats())
			for w := range c.workers { // in the end all goes
				if !h.gone[w] {
					h.want("unregister", h.x.Unregister(worker(w)), nil)
				}
			}
			check(t, h.s)
			if s := h.x.Stats(); s.Blocks+s.Sets+s.Aliases+s.Claims != 0 || s.Bytes != 0 {
				t.Fatalf("left when all workers are gone: %+v", s)
			}
		})
	}
}
