package events_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/internal/events"
	"github.com/kvstored/kvstored/key"
)

func TestTokensAreBounded(t *testing.T) {
	tokens := events.NewTokens()
	const n, each = 1000, 64 << 10 // 256 KiB a chunk: 255 of them fit
	name := func(i int) key.Hash { return key.Hash(binary.BigEndian.AppendUint64(make([]byte, 8), uint64(i+1))) }
	for i := range n {
		c := &key.Chain{Hashes: []key.Hash{name(i), name(i + n)}, Tokens: []uint32{each, 2}}
		tokens.Note(c, func(at int) uint32 { return uint32(i*each + at) })
	}
	known := 0
	for i := range n {
		k := key.Key{Hash: name(i)}
		got := tokens.Append([]uint32{7}, k)
		if len(got) == 1 {
			continue
		}
		if known++; i < n-300 || len(got) != 1+each || got[1] != uint32(i*each) || got[each] != uint32(i*each+each-1) {
			t.Errorf("chunk %d has %d tokens: %d...", i, len(got)-1, got[1])
		}
	}
	if known < 200 || known > 256 {
		t.Errorf("%d chunks are known", known)
	}
	if got := tokens.Append(nil, key.Key{Hash: name(2*n - 1)}); !slices.Equal(got, []uint32{(n-1)*each + each, (n-1)*each + each + 1}) {
		t.Errorf("a last, short chunk is %v", got)
	}
}
