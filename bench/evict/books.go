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

const booksHeader = "        bytes/entry  with tree   hold, touch, let go  put of 16: 99.99 %   longest    GC mark\n"

const (
	promptLen = 512  // chunks: 131,072 tokens in chunks of 256
	payload   = 4096 // what a chunk occupies, on paper
)

// measureBooks fills a ledger with so many chunks and turns it over once, so
// that there are all the ghosts its policy keeps. Then it builds the tree
// that knows the chunks beside it. It prints a row.
func measureBooks(name string, chunks int) error {
	before, err := rss()
	if err != nil {
		return err
	}
	prompts := chunks / promptLen
	n := float64(prompts * promptLen)
	l, _, err := fill(name, prompts)
	if err != nil {
		return err
	}
	mark := marking()
	after, err := rss()
	if err != nil {
		return err
	}
	use, err := useOf(l, prompts)
	if err != nil {
		return err
	}
	known := newTree()
	chain := make([]key.Hash, promptLen)
	for i := range prompts {
		prompt(chain, i)
		if err := known.add(chain, 0); err != nil {
			return err
		}
	}
	runtime.GC()
	both, err := rss()
	if err != nil {
		return err
	}
	runtime.KeepAlive(l)
	runtime.KeepAlive(known)
	l, known = nil, nil
	keepMemory()
	_, puts, err := fill(name, prompts)
	if err != nil {
		return err
	}
	fmt.Printf("%-8s%11.1f%11.1f%13.0f ns a chunk%20v%10v%11v\n", name, float64(after-before)/n, float64(both-before)/n,
		use, puts.at(0.9999), round(puts.longest), mark)
	return nil
}

// fill puts twice as many prompts into a ledger as it has room for, in
// commits. The times are those of the first half, while it grows.
func fill(policyName string, prompts int) (*ledger.Ledger, *times, error) {
	capacity := int64(prompts*promptLen) * payload
	p, err := policy.New(policyName, capacity)
	if err != nil {
		return nil, nil, err
	}
	l := ledger.New(ledger.Options{CapacityBytes: capacity, Policy: p, PolicyName: policyName})
	chain, puts := make([]key.Hash, promptLen), new(times)
	ids := make([]ledger.ID, 0, promptLen)
	for i := range 2 * prompts {
		prompt(chain, i)
		ids = ids[:0]
		for range promptLen / commit {
			start := busy()
			if ids, err = put(l, chain, ids); err != nil {
				return nil, nil, err
			}
			if took := busy() - start; i < prompts {
				puts.add(took)
			}
		}
		l.Unhold(ledger.Daemon, ledger.Lease, ids)
	}
	return l, puts, nil
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

// useOf is what one chunk of a hit costs in the ledger, in nanoseconds: to
// hold, touch and let go of the prompts that are there.
func useOf(l *ledger.Ledger, prompts int) (ns float64, err error) {
	chain, ks := make([]key.Hash, promptLen), make([]key.Key, promptLen)
	out, ids := make([]ledger.Entry, promptLen), make([]ledger.ID, promptLen)
	for seed, left := 2*prompts-1, 1000; left > 0 && seed >= 0; seed-- {
		prompt(chain, seed)
		for i, h := range chain {
			ks[i].Hash = h
		}
		start := time.Now()
		n, err := l.Hold(ledger.Daemon, ledger.Lease, ks, true, out)
		if err != nil {
			return 0, err
		}
		for i, e := range out[:n] {
			ids[i] = e.ID
		}
		l.Unhold(ledger.Daemon, ledger.Lease, ids[:n])
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
