package feed

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// Model is how the blocks of one model are kept: those of engines, which are named
// by their tokens, and chunks of kvstored, which are named as the daemon names
// them. The two have shards of their own. It is plain data, and not changed once a
// publisher has it.
type Model struct {
	Name string
	// BlockTokens is the tokens in a block of the engines; 0: no engine tells
	// events.
	BlockTokens int
	BlockHash   BlockHash
	// Groups are the engines' groups of layers, by their numbers; none: only groups of
	// full attention are counted, as one. All have blocks of BlockTokens.
	Groups []index.Group
	// ChunkTokens is the tokens in a chunk of the daemons; 0: no daemon tells
	// events.
	ChunkTokens int
	// ChunkHash is how the daemons make a chunk's hash of its tokens; empty:
	// key.SHA256. Where engines hand over their own hashes, it is key.Given, and
	// prompts are asked for by hashes only.
	ChunkHash key.Method
}

// BlockHash is a way to name engines' blocks.
type BlockHash uint8

// The ways of package index.
const (
	Dynamo         BlockHash = iota // [index.DynamoHash]
	DynamoUnseeded                  // [index.DynamoHashUnseeded]
	// DynamoEagle is [index.DynamoHashEagle]: engines speculate, and tell of pairs of
	// tokens, as SGLang does with EAGLE. Events of single tokens are passed over.
	DynamoEagle
)

// ErrModel says that a model cannot be kept as it is described.
var ErrModel = errors.New("wrong model")

// Check reports the first thing that is wrong.
func (m *Model) Check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("model %.64q: %w: %s", m.Name, ErrModel, fmt.Sprintf(format, args...))
	}
	switch {
	case m.Name == "" || len(m.Name) > key.MaxTextBytes:
		return fail("a name of %d bytes; use 1 to %d", len(m.Name), key.MaxTextBytes)
	case m.BlockTokens < 0 || m.BlockTokens > maxBlockTokens || m.ChunkTokens < 0 || m.ChunkTokens > key.MaxChunkTokens:
		return fail("blocks of %d tokens and chunks of %d; use 1 to %d and 1 to %d, and 0 for none", m.BlockTokens, m.ChunkTokens, maxBlockTokens, key.MaxChunkTokens)
	case m.BlockTokens == 0 && m.ChunkTokens == 0:
		return fail("neither blocks nor chunks; say how many tokens they have")
	case m.ChunkHash != "" && m.ChunkHash != key.SHA256 && m.ChunkHash != key.XXH64 && m.ChunkHash != key.Given:
		return fail("chunks hashed by %.64q; use sha256, xxh64 or given", m.ChunkHash)
	}
	if err := m.checkGroups(); err != nil {
		return fail("%v", err)
	}
	return nil
}

func (m *Model) checkGroups() error {
	switch {
	case len(m.Groups) == 0:
		return nil
	case m.BlockTokens == 0:
		return errors.New("groups without blocks; set block_tokens")
	}
	return index.CheckGroups(m.Groups)
}

// ChunkHashes are the hashes of the whole chunks of a prompt, as the daemons name
// them.
func (m *Model) ChunkHashes(salt string, tokens []uint32) ([]uint64, error) {
	b, err := key.NewBuilder(key.Space{
		Model: m.Name, World: 1, DType: "any", ChunkTokens: m.ChunkTokens, Method: cmp.Or(m.ChunkHash, key.SHA256), Salt: salt,
	})
	if err != nil {
		return nil, err
	}
	var chain key.Chain
	if err := b.Tokens(&chain, tokens, key.Options{}); err != nil {
		return nil, err
	}
	all := make([]uint64, len(chain.Hashes))
	for i := range chain.Hashes {
		all[i] = event.ShortHash(chain.Hashes[i][:])
	}
	return all, nil
}

// maxBlockTokens is that of router/index.
const maxBlockTokens = 1 << 20

// Blocks is the name of the shard of the engines' blocks.
func (m *Model) Blocks(tenant, salt, lora string) index.Name {
	return index.Name{Model: m.Name, Tenant: tenant, Salt: salt, LoRA: lora}
}

// Chunks is the name of the shard of the daemons' chunks. A salt is part of their
// hashes.
func (m *Model) Chunks(tenant, lora string) index.Name {
	return index.Name{Model: m.Name + chunksOf, Tenant: tenant, LoRA: lora}
}

// chunksOf is behind the model's name in the name of a shard of chunks.
const chunksOf = " (chunks)"

// hash is how the engines' blocks are named.
func (m *Model) hash(salt, lora string) index.Hash {
	switch m.BlockHash {
	case DynamoUnseeded:
		return index.DynamoHashUnseeded()
	case DynamoEagle:
		return index.DynamoHashEagle(lora, salt)
	default:
		return index.DynamoHash(lora, salt)
	}
}

// OpenBlocks returns the shard of an event, made if it is the first.
func (m *Model) OpenBlocks(x *index.Index, tenant, salt, lora string) (*index.Shard, error) {
	return open(x, m.Blocks(tenant, salt, lora), index.Config{BlockTokens: m.BlockTokens, Groups: m.Groups, Hash: m.hash(salt, lora)})
}

// OpenChunks is OpenBlocks for chunks.
func (m *Model) OpenChunks(x *index.Index, tenant, lora string) (*index.Shard, error) {
	return open(x, m.Chunks(tenant, lora), index.Config{BlockTokens: m.ChunkTokens})
}

func open(x *index.Index, n index.Name, c index.Config) (*index.Shard, error) {
	s, err := x.Shard(n)
	if errors.Is(err, index.ErrUnknownShard) || errors.Is(err, index.ErrUnknownModel) {
		if s, err = x.Open(n, c); errors.Is(err, index.ErrShardExists) { // another was faster
			return x.Shard(n)
		}
	}
	return s, err
}

// OfModel reports whether a shard is one of a model's; all are of "".
func OfModel(shard, model string) bool {
	return model == "" || shard == model || shard == model+chunksOf
}
