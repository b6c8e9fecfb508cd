package index_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/router/index"
)

// The vectors of the chain without LoRA and salt equal those in the tests of
// ai-dynamo/dynamo, lib/tokens; those with a LoRA and a salt were computed from
// its seeds.
func TestDynamoHash(t *testing.T) {
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
	for _, c := range []struct {
		name       string
		lora, salt string
		parent     index.Parent
		from, to   int
		want       []uint64
	}{
		{"chain", "", "", index.Root, 0, 13, []uint64{14643705804678351452, 4945711292740353085, 12583592247330656132}},
		{"behind a parent", "", "", index.After(4945711292740353085), 8, 13, []uint64{12583592247330656132}},
		{"LoRA", "my-lora", "", index.Root, 0, 4, []uint64{15671544057904749233}},
		{"salt", "", "tenant-a", index.Root, 0, 4, []uint64{5738685477468498325}},
		{"less than a block", "", "", index.Root, 0, 3, nil},
	} {
		got, err := index.DynamoHash(c.lora, c.salt).Append(nil, c.parent, tokens[c.from:c.to], 4)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

// A block of an engine that speculates as EAGLE does has the token behind it in its hash.
func TestDynamoHashEagle(t *testing.T) {
	h := index.DynamoHashEagle("", "")
	text := func(tokens ...uint32) (b []byte) {
		for _, x := range tokens {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
		return b
	}
	first := xxh3.HashSeed(text(1, 2, 3), 1337)
	pair := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, first), xxh3.HashSeed(text(3, 4, 5), 1337))
	want := []uint64{first, xxh3.HashSeed(pair, 1337)}
	for n, count := range map[int]int{0: 0, 1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 2} {
		got, err := h.Append(nil, index.Root, []uint32{1, 2, 3, 4, 5, 6}[:n], 2)
		if err != nil || !slices.Equal(got, want[:count]) || h.Blocks(n, 2) != count {
			t.Errorf("%d tokens: %x, %v, %d blocks; want %x", n, got, err, h.Blocks(n, 2), want[:count])
		}
	}
}

func TestDynamoLocalHash(t *testing.T) {
	for _, c := range []struct {
		tokens []uint32
		want   uint64
	}{
		{[]uint32{5, 6, 7, 8}, 16777012769546811212},
		{[]uint32{9, 10, 11, 12}, 483935686894639516},
	} { // of a first block, local and sequence hash are one
		got, err := index.DynamoHash("", "").Append(nil, index.Root, c.tokens, 4)
		if err != nil || !slices.Equal(got, []uint64{c.want}) {
			t.Errorf("%v: %d, %v; want %d", c.tokens, got, err, c.want)
		}
	}
}

// Unseeded: written out with the library's own functions.
func TestDynamoHashUnseeded(t *testing.T) {
	tokens := []uint32{1, 2, 3, 4, 5, 6, 7, 8, 9}
	pair := func(a, b uint64) uint64 {
		return xxh3.Hash(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, a), b))
	}
	first := pair(0, xxh3.Hash([]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0}))
	then := pair(first, xxh3.Hash([]byte{5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0}))
	got, err := index.DynamoHashUnseeded().Append(nil, index.Root, tokens, 4)
	if err != nil || !slices.Equal(got, []uint64{first, then}) {
		t.Errorf("%d, %v; want %d", got, err, []uint64{first, then})
	}
}

// A block that does not fit on the stack is hashed in pieces.
func TestLongBlocks(t *testing.T) {
	tokens := make([]uint32, 1300)
	var text []byte
	for i := range tokens {
		tokens[i] = uint32(i * i)
		text = binary.LittleEndian.AppendUint32(text, tokens[i])
	}
	got, err := index.DynamoHash("", "").Append(nil, index.Root, tokens, len(tokens))
	if want := xxh3.HashSeed(text, 1337); err != nil || !slices.Equal(got, []uint64{want}) {
		t.Errorf("%d, %v; want %d", got, err, want)
	}
}
