package key_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// vectors is testdata/vectors.json, which another implementation wrote.
type vectors struct {
	Spaces []spaceVector
	Given  []givenVector
}

type spaceVector struct {
	Space     spaceJSON
	Canonical string
	ID        string
	Tokens    []uint32
	Hashes    []string
}

type givenVector struct {
	Space   spaceJSON
	ID      string
	Width   int
	Raw     string
	Lengths []uint32
	Hashes  []string
}

type spaceJSON struct {
	Model, Revision, LoRA, DType, Method, Group, Salt string
	World, Worker                                     int
	ChunkTokens                                       int `json:"chunk_tokens"`
	Tags                                              [][2]string
}

func (j spaceJSON) space() key.Space {
	s := key.Space{
		Model: j.Model, Revision: j.Revision, LoRA: j.LoRA, World: j.World, Worker: j.Worker,
		DType: j.DType, ChunkTokens: j.ChunkTokens, Method: key.Method(j.Method),
		Group: j.Group, Salt: j.Salt,
	}
	for _, t := range j.Tags {
		s.Tags = append(s.Tags, key.Tag{Name: t[0], Value: t[1]})
	}
	return s
}

func readVectors(t testing.TB) vectors {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Spaces) == 0 || len(v.Given) == 0 {
		t.Fatal("testdata/vectors.json is empty")
	}
	return v
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestVectorsTokens(t *testing.T) {
	for _, v := range readVectors(t).Spaces {
		s := v.Space.space()
		form, err := s.AppendCanonical(nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := hex.EncodeToString(form); got != v.Canonical {
			t.Errorf("canonical form of %+v:\n got %s\nwant %s", s, got, v.Canonical)
		}
		b := newBuilder(t, s)
		if got := b.Space().String(); got != v.ID {
			t.Errorf("id of %+v = %s, want %s", s, got, v.ID)
		}
		var fromTokens, fromBytes key.Chain
		if err := b.Tokens(&fromTokens, v.Tokens, key.Options{SaveUnfull: true}); err != nil {
			t.Fatal(err)
		}
		if err := b.TokenBytes(&fromBytes, tokenBytes(v.Tokens), key.Options{SaveUnfull: true}); err != nil {
			t.Fatal(err)
		}
		checkHashes(t, &fromTokens, v.Hashes)
		checkHashes(t, &fromBytes, v.Hashes)
	}
}

func TestVectorsGiven(t *testing.T) {
	for _, v := range readVectors(t).Given {
		s := v.Space.space()
		b := newBuilder(t, s)
		if got := b.Space().String(); got != v.ID {
			t.Errorf("id of %+v = %s, want %s", s, got, v.ID)
		}
		var c key.Chain
		if err := b.Hashes(&c, v.Width, unhex(t, v.Raw), v.Lengths, key.Options{SaveUnfull: true}); err != nil {
			t.Fatal(err)
		}
		checkHashes(t, &c, v.Hashes)
		if !slices.Equal(c.Tokens, v.Lengths) {
			t.Errorf("tokens = %v, want %v", c.Tokens, v.Lengths)
		}
	}
}

func checkHashes(t *testing.T, c *key.Chain, want []string) {
	t.Helper()
	if c.Len() != len(want) {
		t.Fatalf("%d chunks, want %d", c.Len(), len(want))
	}
	for i, w := range want {
		if got := hex.EncodeToString(c.Hashes[i][:]); got != w {
			t.Errorf("hash of chunk %d = %s, want %s", i, got, w)
		}
	}
}
