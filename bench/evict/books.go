package main

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

const (
	booksHeader = "        bytes/entry  with tree  two tiers   hold, touch, let go    GC mark\n"
	putsHeader  = "       put of 16: 99.99 %   longest   slowest\n"
)

const (
	promptLen   = 512 // chunks: 131,072 tokens
	chunkTokens = 256
	payload     = 4096 // what a chunk occupies, on paper
)

// measureBooks fills a ledger with so many chunks and turns it over once, so
// that there are all the ghosts its policy keeps. Then it builds the tree
// that knows the chunks beside it, and a second ledger, as of a disk that has
// them too. It prints a row.
func measureBooks(name string, chunks int) error {
	prompts := chunks / promptLen
	var sizes sizes
	sizes.look()
	dram, err := turned(name, prompts)
	if err != nil {
		return err
	}
	mark := marking()
	sizes.look()
	use, err := useOf(dram, prompts)
	if err != nil {
		return err
	}
	known := newTree()
	chain := make([]key.Hash, promptLen)
	for i := range prompts {
		prompt(chain, prompts+i)
		if err := known.add(chain, 0); err != nil {
			return err
		}
	}
	runtime.GC()
	sizes.look()
	disk, err := turned(name, prompts)
	if err != nil {
		return err
	}
	runtime.GC()
	sizes.look()
	if sizes.err != nil {
		return sizes.err
	}
	runtime.KeepAlive(dram)
	runtime.KeepAlive(known)
	runtime.KeepAlive(disk)
	n := prompts * promptLen
	fmt.Printf("%-8s%11.1f%11.1f%11.1f%13.0f ns a chunk%11v\n", name, sizes.each(1, n), sizes.each(2, n), sizes.each(3, n), use, mark)
	return nil
}

// measurePuts fills a ledger with so many chunks, a few times, and prints a row.
func measurePuts(name string, chunks int) error {
	prompts := chunks / promptLen
	middle, all, err := timed(func(took func(time.Duration)) error {
		l, err := newLedger(name, prompts)
		if err != nil {
			return err
		}
		return fill(l, prompts, took)
	})
	if err != nil {
		return err
	}
	fmt.Printf("%-8s%17v%10v%10v\n", name, middle.at(0.9999), round(middle.longest), round(all.longest))
	return nil
}

// sizes are what the process had at some moments.
type sizes struct {
	seen []int64
	err  error
}

func (s *sizes) look() {
	n, err := rss()
	s.seen, s.err = append(s.seen, n), errors.Join(s.err, err)
}

// each is the growth from the first moment to another, for each of n.
func (s *sizes) each(moment, n int) float64 {
	return float64(s.seen[moment]-s.seen[0]) / float64(n)
}

// newLedger has room for so many prompts.
func newLedger(policyName string, prompts int) (*ledger.Ledger, error) {
	capacity := int64(prompts*promptLen) * payload
	p, err := policy.New(policyName, capacity)
	if err != nil {
		return nil, err
	}
	return ledger.New(ledger.Options{CapacityBytes: capacity, Policy: p, PolicyName: policyName}), nil
}

// turned returns a ledger that twice as many prompts were put into as it has
// room for.
func turned(policyName string, prompts int) (*ledger.Ledger, error) {
	l, err := newLedger(policyName, prompts)
	if err != nil {
		return nil, err
	}
	return l, fill(l, 2*prompts, func(time.Duration) {})
}

// fill puts so many prompts in, in commits, and says how long each took. Every
// second prompt is used once more: that makes arc's second list and all the
// ghosts it may have, and lets s3fifo have all of its own.
func fill(l *ledger.Ledger, prompts int, took func(time.Duration)) (err error) {
	chain, ids, hit := make([]key.Hash, promptLen), make([]ledger.ID, 0, promptLen), newHit()
	for i := range prompts {
		prompt(chain, i)
		announce(l, chain)
		ids = ids[:0]
		for range promptLen / commit {
			start := busy()
			if ids, err = put(l, chain, ids); err != nil {
				return err
			}
			took(busy() - start)
		}
		l.Unhold(ledger.Daemon, ledger.Lease, ids)
		for range i % 2 * 2 { // the first is the use that it came up for
			if _, err := hit.use(l, chain); err != nil {
				return err
			}
		}
	}
	return nil
}

// put stores the next chunks of a prompt, each for a victim once there is no
// room, and holds them as a client does that goes on with it.
func put(l *ledger.Ledger, chain []key.Hash, ids []ledger.ID) ([]ledger.ID, error) {
	from := len(ids)
	for i := from; i < from+commit; i++ {
		var parent key.Hash
		if i > 0 {
			parent = chain[i-1]
		}
		id, _, err := l.Begin(ledger.Daemon, ledger.Load, key.Key{Hash: chain[i]}, parent, payload)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
		for l.Room() < 0 {
			v, ok := l.Evict()
			if !ok {
				return nil, errors.New("everything is protected")
			}
			l.Free(v.ID)
		}
	}
	_, err := l.PublishHeld(ledger.Daemon, ledger.Lease, ids[from:], false)
	return ids, err
}

// hit is a request for a whole prompt that is there.
type hit struct {
	ks  []key.Key
	out []ledger.Entry
	ids []ledger.ID
}

func newHit() *hit {
	return &hit{make([]key.Key, promptLen), make([]ledger.Entry, promptLen), make([]ledger.ID, promptLen)}
}

// use is what the daemon does in a ledger for a lookup and the lease that
// follows: it announces the prompt, holds its resident prefix, touches that, and
// lets go. It returns how many chunks that were.
func (h *hit) use(l *ledger.Ledger, chain []key.Hash) (n int, err error) {
	announce(l, chain)
	for i, hash := range chain {
		h.ks[i].Hash = hash
	}
	if n, err = l.Hold(ledger.Daemon, ledger.Lease, h.ks, h.out); err != nil {
		return 0, err
	}
	l.Touch(h.ks[:n])
	for i, e := range h.out[:n] {
		h.ids[i] = e.ID
	}
	l.Unhold(ledger.Daemon, ledger.Lease, h.ids[:n])
	return n, nil
}

// announce tells a policy that plans of a prompt, and has it learn when that is
// due. Other policies are not concerned.
func announce(l *ledger.Ledger, chain []key.Hash) {
	if l.Plans() && l.Observe(&ledger.Request{Hashes: chain, ChunkTokens: chunkTokens, Tokens: chunkTokens * len(chain)}) {
		l.Train()
	}
}

// useOf is the cost of one chunk of a hit in the ledger, in nanoseconds: the
// least of some prompts that are there whole.
func useOf(l *ledger.Ledger, prompts int) (ns float64, err error) {
	chain, hit := make([]key.Hash, promptLen), newHit()
	for seed, left := 2*prompts-1, 1000; left > 0 && seed >= 0; seed-- {
		prompt(chain, seed)
		start := time.Now()
		n, err := hit.use(l, chain)
		if err != nil {
			return 0, err
		}
		if n < promptLen {
			continue // partly evicted
		}
		left--
		if took := float64(time.Since(start)) / promptLen; ns == 0 || took < ns {
			ns = took
		}
	}
	return ns, nil
}
