package main

import (
	"errors"
	"time"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// books are a ledger and what a daemon does with it, call by call: as package cpu
// does for a client, or as package disk does for the daemon.
type books struct {
	*ledger.Ledger
	client ledger.Owner
	disk   bool // of the disk, and not of DRAM over a disk
	ks     []key.Key
	out    []ledger.Entry
	ids    []ledger.ID
}

// onDisk is the tier below DRAM.
const onDisk = ledger.Below(1)

// newDRAM has room for so many prompts, over a disk that works.
func newDRAM(policyName string, prompts int) (*books, error) {
	b, err := newBooks(policyName, prompts)
	if err == nil {
		b.StandOn(func() ledger.Below { return onDisk })
	}
	return b, err
}

// newDisk has room for so many prompts, over nothing.
func newDisk(policyName string, prompts int) (*books, error) {
	b, err := newBooks(policyName, prompts)
	if err == nil {
		b.disk = true
	}
	return b, err
}

func newBooks(policyName string, prompts int) (*books, error) {
	capacity := int64(prompts*promptLen) * payload
	p, err := policy.New(policyName, capacity)
	if err != nil {
		return nil, err
	}
	l := ledger.New(ledger.Options{
		CapacityBytes: capacity, Policy: p, PolicyName: policyName,
		Limits: ledger.Limits{Lease: capacity / 2, Unwritten: capacity / 4, Total: capacity / 4 * 3},
	})
	return &books{
		Ledger: l, client: l.NewOwner(),
		ks: make([]key.Key, promptLen), out: make([]ledger.Entry, promptLen), ids: make([]ledger.ID, 0, promptLen),
	}, nil
}

// turned returns books that twice as many prompts were put into as there is room
// for.
func turned(fresh func(string, int) (*books, error), policyName string, prompts int) (*books, error) {
	b, err := fresh(policyName, prompts)
	if err != nil {
		return nil, err
	}
	return b, b.fill(2*prompts, func(time.Duration) {})
}

// fill puts so many prompts in, in commits, and says how long each took. Every
// second prompt is used once: that makes arc's second list and all the ghosts it
// may have, and lets s3fifo have all of its own.
func (b *books) fill(prompts int, took func(time.Duration)) error {
	chain := make([]key.Hash, promptLen)
	for i := range prompts {
		prompt(chain, i)
		b.observe(chain)
		for from := 0; from < promptLen; from += commit {
			start := busy()
			if err := b.put(chain, from); err != nil {
				return err
			}
			took(busy() - start)
			if err := b.written(chain[from : from+commit]); err != nil {
				return err
			}
		}
		if i%2 == 1 {
			if _, err := b.hit(chain); err != nil {
				return err
			}
		}
	}
	return nil
}

// put stores the next chunks of a prompt, each for a victim once there is no
// room. DRAM publishes a client's chunks together, the disk one by one.
func (b *books) put(chain []key.Hash, from int) error {
	owner, class, each := b.client, ledger.Lease, commit
	if b.disk {
		owner, class, each = ledger.Daemon, ledger.IO, 1
	}
	ids := b.ids[:0]
	for i := from; i < from+commit; i++ {
		var parent key.Hash
		if i > 0 {
			parent = chain[i-1]
		}
		id, _, err := b.Begin(owner, class, key.Key{Hash: chain[i]}, parent, payload)
		if err != nil {
			return err
		}
		if err := b.room(id); err != nil {
			return err
		}
		b.SetValue(id, ledger.Value{A: uint64(i)})
		if ids = append(ids, id); len(ids) == each {
			b.Publish(ids, !b.disk)
			ids = ids[:0]
		}
	}
	return nil
}

// room evicts until there is room for a fill.
func (b *books) room(fill ledger.ID) error {
	if _, over, _ := b.EvictOwn(fill); over {
		return errors.New("a quota without any is exceeded")
	}
	for b.Room() < 0 {
		v, ok := b.Evict()
		if !ok {
			return errors.New("everything is protected")
		}
		b.Free(v.ID)
	}
	return nil
}

// written is what the writer to the disk does in DRAM's ledger, beside the puts.
func (b *books) written(hs []key.Hash) error {
	if b.disk {
		return nil
	}
	for _, h := range hs {
		k := key.Key{Hash: h}
		n, err := b.Hold(ledger.Daemon, ledger.Unwritten, []key.Key{k}, b.out[:1])
		if n == 0 {
			if err != nil {
				return err
			}
			continue // evicted meanwhile
		}
		id := b.out[0].ID
		b.SetDirty(id, false)
		b.SetBelow(k, onDisk, true)
		b.Unhold(ledger.Daemon, ledger.Unwritten, []ledger.ID{id})
	}
	return nil
}

// hit is a lookup of a whole prompt and the lease that follows: the policy is
// told, the resident prefix is held, touched, and let go of. It returns how many
// chunks that were.
func (b *books) hit(chain []key.Hash) (n int, err error) {
	b.observe(chain)
	for i, hash := range chain {
		b.ks[i].Hash = hash
	}
	for n < promptLen {
		part := b.ks[n:min(n+batch, promptLen)]
		got, err := b.Hold(b.client, ledger.Lease, part, b.out[n:])
		if err != nil {
			return 0, err
		}
		if n += got; got < len(part) {
			break
		}
	}
	b.Touch(b.ks[:n])
	for from := 0; from < n; from += batch {
		ids := b.ids[:0]
		for _, e := range b.out[from:min(from+batch, n)] {
			ids = append(ids, e.ID)
		}
		b.Unhold(b.client, ledger.Lease, ids)
	}
	return n, nil
}

// observe tells a policy that plans of a prompt, and trains it when that is due.
// Other policies are not concerned.
func (b *books) observe(chain []key.Hash) {
	if b.Plans() && b.Observe(&ledger.Request{Hashes: chain, ChunkTokens: chunkTokens, Tokens: chunkTokens * len(chain)}) {
		b.Train()
	}
}

// useOf is the cost of one chunk of a hit in the ledger, in nanoseconds of
// processor time: the least of some prompts that are there whole.
func useOf(b *books, prompts int) (ns float64, err error) {
	chain := make([]key.Hash, promptLen)
	for seed, left := 2*prompts-1, 1000; left > 0 && seed >= 0; seed-- {
		prompt(chain, seed)
		start := busy()
		n, err := b.hit(chain)
		if err != nil {
			return 0, err
		}
		if n < promptLen {
			continue // partly evicted
		}
		left--
		if took := float64(busy()-start) / promptLen; ns == 0 || took < ns {
			ns = took
		}
	}
	return ns, nil
}
