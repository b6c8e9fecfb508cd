package key_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func space(m key.Method, chunkTokens int) key.Space {
	return key.Space{Model: "m", World: 1, DType: "bf16", ChunkTokens: chunkTokens, Method: m}
}

func newBuilder(t testing.TB, s key.Space) *key.Builder {
	t.Helper()
	b, err := key.NewBuilder(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func tokenBytes(tokens []uint32) []byte {
	var raw []byte
	for _, t := range tokens {
		raw = binary.LittleEndian.AppendUint32(raw, t)
	}
	return raw
}

// ascending returns n distinct tokens.
func ascending(n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		tokens[i] = uint32(i)
	}
	return tokens
}

// wide returns n distinct non-zero hashes of width bytes.
func wide(width, n int) []byte {
	raw := make([]byte, width*n)
	for i := range n {
		binary.LittleEndian.PutUint64(raw[i*width:], uint64(i+1))
	}
	return raw
}

// TestSHA256ByHand writes the bytes out instead of trusting any helper.
func TestSHA256ByHand(t *testing.T) {
	s := space(key.SHA256, 2)
	s.Salt = "pepper"
	var got key.Chain
	if err := newBuilder(t, s).Tokens(&got, []uint32{1, 0x01020304, 5}, key.Options{SaveUnfull: true}); err != nil {
		t.Fatal(err)
	}
	seed := sha256.Sum256([]byte("kvstored-chain-1" + "\x06\x00\x00\x00sha256" + "\x02\x00\x00\x00" + "\x06\x00\x00\x00pepper"))
	first := sha256.Sum256([]byte(string(seed[:16]) + "\x01\x00\x00\x00" + "\x04\x03\x02\x01"))
	second := sha256.Sum256([]byte(string(first[:16]) + "\x05\x00\x00\x00"))
	want := []key.Hash{key.Hash(first[:16]), key.Hash(second[:16])}
	if !slices.Equal(got.Hashes, want) {
		t.Errorf("hashes = %x, want %x", got.Hashes, want)
	}
	if !got.Chained {
		t.Error("a chain computed from tokens is not marked as chained")
	}
	if got.Parent(0) != (key.Hash{}) || got.Parent(1) != want[0] {
		t.Errorf("parents = %x, %x", got.Parent(0), got.Parent(1))
	}
}

func TestLastChunkAndSkip(t *testing.T) {
	tests := []struct {
		tokens     int
		o          key.Options
		wantTokens []uint32
	}{
		{tokens: 0},
		{tokens: 3},
		{tokens: 3, o: key.Options{SaveUnfull: true}, wantTokens: []uint32{3}},
		{tokens: 8, wantTokens: []uint32{4, 4}},
		{tokens: 8, o: key.Options{SaveUnfull: true}, wantTokens: []uint32{4, 4}},
		{tokens: 9, wantTokens: []uint32{4, 4}},
		{tokens: 9, o: key.Options{SaveUnfull: true}, wantTokens: []uint32{4, 4, 1}},
	}
	computed := newBuilder(t, space(key.SHA256, 4))
	given := newBuilder(t, space(key.Given, 4))
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d tokens %+v", tt.tokens, tt.o), func(t *testing.T) {
			lengths := slices.Repeat([]uint32{4}, tt.tokens/4)
			if tt.tokens%4 != 0 {
				lengths = append(lengths, uint32(tt.tokens%4))
			}
			raw := tokenBytes(ascending(tt.tokens))
			for form, build := range map[string]func(*key.Chain) error{
				"tokens": func(c *key.Chain) error { return computed.Tokens(c, ascending(tt.tokens), tt.o) },
				"bytes":  func(c *key.Chain) error { return computed.TokenBytes(c, raw, tt.o) },
				"hashes": func(c *key.Chain) error { return given.Hashes(c, 8, wide(8, len(lengths)), lengths, tt.o) },
			} {
				c := key.Chain{Hashes: make([]key.Hash, 7), Tokens: make([]uint32, 9), Skip: 5}
				err := build(&c)
				if err != nil || !slices.Equal(c.Tokens, tt.wantTokens) || c.Len() != len(tt.wantTokens) || c.Skip != 0 {
					t.Errorf("%s: %d chunks of %v tokens, skip %d, %v; want %v", form, c.Len(), c.Tokens, c.Skip, err, tt.wantTokens)
				}
			}
		})
	}
}

func TestHashesRefuses(t *testing.T) {
	cyclic := append(wide(16, 2), wide(16, 1)...)
	sameHead := wide(32, 2)
	copy(sameHead[32:48], sameHead[:16])
	sameHead[63] = 1 // differs only in what is cut off
	tests := []struct {
		name    string
		method  key.Method
		width   int
		raw     []byte
		lengths []uint32
		want    string
	}{
		{"width", key.Given, 20, make([]byte, 20), []uint32{4}, "hashes of 20 bytes"},
		{"negative width", key.Given, -8, nil, nil, "hashes of -8 bytes"},
		{"too few bytes", key.Given, 8, wide(8, 1)[:7], []uint32{4}, "7 bytes of hashes for 1 chunks"},
		{"too many bytes", key.Given, 8, wide(8, 2), []uint32{4}, "16 bytes of hashes for 1 chunks"},
		{"short in the middle", key.Given, 8, wide(8, 2), []uint32{3, 4}, "chunk 0 of 2 has 3 tokens"},
		{"empty last", key.Given, 8, wide(8, 2), []uint32{4, 0}, "chunk 1 of 2 has 0 tokens"},
		{"long last", key.Given, 8, wide(8, 1), []uint32{5}, "chunk 0 of 1 has 5 tokens"},
		{"huge last", key.Given, 8, wide(8, 1), []uint32{1<<32 - 1}, "chunk 0 of 1 has 4294967295 tokens"},
		{"zero", key.Given, 8, make([]byte, 8), []uint32{4}, "all zero"},
		{"zero once cut", key.Given, 32, append(make([]byte, 16), wide(16, 1)...), []uint32{4}, "all zero"},
		{"twice", key.Given, 16, cyclic, []uint32{4, 4, 4}, "chunks 0 and 2 have the same hash"},
		{"twice once cut", key.Given, 32, sameHead, []uint32{4, 4}, "chunks 0 and 1 have the same hash"},
		{"narrow in a computed space", key.SHA256, 8, wide(8, 1), []uint32{4}, "send tokens"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := key.Chain{Hashes: make([]key.Hash, 3), Tokens: make([]uint32, 3)}
			err := newBuilder(t, space(tt.method, 4)).Hashes(&c, tt.width, tt.raw, tt.lengths, key.Options{})
			if !errors.Is(err, key.ErrChain) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
			if c.Len() != 0 || len(c.Tokens) != 0 {
				t.Errorf("the refused chain has %d hashes and %d lengths", c.Len(), len(c.Tokens))
			}
		})
	}
}

func TestTooManyChunks(t *testing.T) {
	n := key.MaxChunks + 1
	var c key.Chain
	if err := newBuilder(t, space(key.XXH64, 1)).TokenBytes(&c, make([]byte, 4*n), key.Options{}); !errors.Is(err, key.ErrChain) {
		t.Errorf("tokens: error %v", err)
	}
	if err := newBuilder(t, space(key.Given, 1)).Hashes(&c, 8, make([]byte, 8*n), make([]uint32, n), key.Options{}); !errors.Is(err, key.ErrChain) {
		t.Errorf("hashes: error %v", err)
	}
}

func TestTokensRefused(t *testing.T) {
	var c key.Chain
	if err := newBuilder(t, space(key.Given, 4)).Tokens(&c, ascending(4), key.Options{}); !errors.Is(err, key.ErrChain) {
		t.Errorf("tokens in a space of given hashes: error %v", err)
	}
	if err := newBuilder(t, space(key.SHA256, 4)).TokenBytes(&c, make([]byte, 17), key.Options{}); !errors.Is(err, key.ErrChain) {
		t.Errorf("17 bytes of tokens: error %v", err)
	}
}

// TestHashesOfABuilder: what a client computed with its own Builder names the
// same chunks, but is not trusted to be chained.
func TestHashesOfABuilder(t *testing.T) {
	b := newBuilder(t, space(key.SHA256, 4))
	var computed, given key.Chain
	if err := b.Tokens(&computed, ascending(11), key.Options{SaveUnfull: true}); err != nil {
		t.Fatal(err)
	}
	var raw []byte
	for _, h := range computed.Hashes {
		raw = append(raw, h[:]...)
	}
	if err := b.Hashes(&given, 16, raw, computed.Tokens, key.Options{SaveUnfull: true}); err != nil {
		t.Fatal(err)
	}
	if given.Chained {
		t.Error("given hashes are marked as chained")
	}
	if given.Space != computed.Space || !slices.Equal(given.Hashes, computed.Hashes) || !slices.Equal(given.Tokens, computed.Tokens) {
		t.Errorf("given %+v, computed %+v", given, computed)
	}
}

// TestSeed: the chain depends on method, chunk tokens and salt, and on nothing
// else of the space.
func TestSeed(t *testing.T) {
	first := func(s key.Space) key.Hash {
		var c key.Chain
		if err := newBuilder(t, s).Tokens(&c, ascending(4), key.Options{SaveUnfull: true}); err != nil {
			t.Fatal(err)
		}
		return c.Hashes[0]
	}
	base := first(space(key.SHA256, 4))
	other := key.Space{
		Model: "n", Revision: "r", LoRA: "l", World: 4, Worker: 2, DType: "fp8", ChunkTokens: 4,
		Method: key.SHA256, Group: "g", Tags: []key.Tag{{Name: "a", Value: "b"}},
	}
	if first(other) != base {
		t.Error("the chain depends on more than method, chunk tokens and salt")
	}
	salted := space(key.SHA256, 4)
	salted.Salt = "s"
	for name, s := range map[string]key.Space{"salt": salted, "chunk tokens": space(key.SHA256, 8), "method": space(key.XXH64, 4)} {
		if first(s) == base {
			t.Errorf("the chain does not depend on the %s", name)
		}
	}
}

func TestBuilderDoesNotAllocate(t *testing.T) {
	tokens := ascending(64 * 16)
	raw, given := tokenBytes(tokens), wide(32, 64)
	lengths := slices.Repeat([]uint32{16}, 64)
	for _, m := range []key.Method{key.SHA256, key.XXH64, key.Given} {
		b := newBuilder(t, space(m, 16))
		var c key.Chain
		build := func() error { return b.Hashes(&c, 32, given, lengths, key.Options{}) }
		if m != key.Given {
			build = func() error {
				return errors.Join(b.Tokens(&c, tokens, key.Options{}), b.TokenBytes(&c, raw, key.Options{}))
			}
		}
		if err := build(); err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(10, func() { _ = build() }); n != 0 {
			t.Errorf("%s: %v allocations for a chain", m, n)
		}
	}
}
