package measure

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// ChunkTokens is the length of a chunk in Space.
const ChunkTokens = 256

// Space is the space of benchmarks. Its hashes are made up.
var Space = key.Space{Model: "bench", World: 1, DType: "none", ChunkTokens: ChunkTokens, Method: "given:bench"}

// Options are the options of a client that works in Space.
func Options() client.Options { return client.Options{Name: "bench", Space: &Space} }

// Prompts makes prompts that share no chunk. The zero value is ready, and may be used from
// any goroutine.
type Prompts struct{ made atomic.Uint64 }

// New is a new prompt of so many chunks.
func (p *Prompts) New(chunks int) client.Prompt { return Prompt(p.made.Add(1), chunks) }

// Prompt is the n-th prompt, from 1 on, of at most 65,536 chunks. Cut after fewer it is its
// own prefix.
func Prompt(n uint64, chunks int) client.Prompt {
	hashes, lengths := make([]byte, 0, 16*chunks), make([]uint32, chunks)
	for i := range chunks {
		hashes = binary.LittleEndian.AppendUint64(hashes, n*(math.MaxUint16+1)+uint64(i))
		hashes = binary.LittleEndian.AppendUint64(hashes, 1<<56)
		lengths[i] = ChunkTokens
	}
	return client.Hashes(16, hashes, lengths)
}
