package server

import (
	"slices"
	"unsafe"

	"github.com/kvstored/kvstored/internal/budget"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// keptChains are the chains that a client refers to by numbers of its own: the last
// wire.KeptChains, and at most wire.KeptChunks of them together. They are the reader's
// alone, and charged until they are dropped.
type keptChains struct {
	list  []keptChain // oldest first
	bytes budget.Held
}

type keptChain struct {
	id    uint64
	chain key.Chain
}

// keptBytes is what n chunks of a chain take.
func keptBytes(n int) int64 {
	return int64(n) * int64(unsafe.Sizeof(key.Hash{})+unsafe.Sizeof(uint32(0)))
}

// add keeps a copy of a chain, unless it is too long. An error ends the connection.
func (k *keptChains) add(id uint64, c *key.Chain) error {
	k.list = slices.DeleteFunc(k.list, func(o keptChain) bool { return o.id == id })
	n := c.Len()
	if n > wire.KeptChunks {
		return k.bytes.Set(k.charge())
	}
	chunks := n
	for i := range k.list {
		chunks += k.list[i].chain.Len()
	}
	for len(k.list) > 0 && (len(k.list) >= wire.KeptChains || chunks > wire.KeptChunks) {
		chunks -= k.list[0].chain.Len()
		k.list = slices.Delete(k.list, 0, 1)
	}
	if err := k.bytes.Set(k.charge() + keptBytes(n)); err != nil {
		return err
	}
	kept := *c
	kept.Hashes, kept.Tokens = slices.Clone(c.Hashes), slices.Clone(c.Tokens)
	k.list = append(k.list, keptChain{id, kept})
	return nil
}

func (k *keptChains) charge() (n int64) {
	for i := range k.list {
		n += keptBytes(k.list[i].chain.Len())
	}
	return n
}

// get is a chain that is kept; nil if there is none. Its slices are never changed.
func (k *keptChains) get(id uint64) *key.Chain {
	for i := range k.list {
		if k.list[i].id == id {
			return &k.list[i].chain
		}
	}
	return nil
}
