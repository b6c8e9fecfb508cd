package history

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

const (
	prompts      = 120
	promptChunks = 12
	chunkTokens  = 16
)

// space is that of all prompts.
var space = key.Space{Model: "consistency", World: 1, DType: "none", ChunkTokens: chunkTokens, Method: "given:consistency"}

// prompt is one chain of chunks, as all clients know it.
type prompt struct {
	hashes []key.Hash
	client.Prompt
	aged bool // its chunks may have an end
}

// makePrompts makes the prompts of a run. Two neighbours share their first
// half, so that there are branches, and with it whether they are aged.
func makePrompts(seed uint64) []prompt {
	out := make([]prompt, prompts)
	lengths := make([]uint32, promptChunks)
	for i := range lengths {
		lengths[i] = chunkTokens
	}
	for n := range out {
		out[n].aged = n&2 != 0
		var raw []byte
		for i := range promptChunks {
			branch := uint64(n)
			if i < promptChunks/2 {
				branch &^= 1
			}
			var h key.Hash
			binary.LittleEndian.PutUint64(h[:], mix(seed+branch<<32+uint64(i)+1))
			binary.LittleEndian.PutUint64(h[8:], branch<<32+uint64(i)+1)
			out[n].hashes = append(out[n].hashes, h)
			raw = append(raw, h[:]...)
		}
		out[n].Prompt = client.Hashes(len(key.Hash{}), raw, lengths)
	}
	return out
}
