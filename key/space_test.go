package key_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func id(t testing.TB, s key.Space) key.SpaceID {
	t.Helper()
	id, err := s.ID()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestEveryFieldCounts: two spaces that differ in one field never share
// payloads, and text cannot move from one field to the next.
func TestEveryFieldCounts(t *testing.T) {
	seen := map[key.SpaceID]string{}
	for name, change := range map[string]func(*key.Space){
		"nothing":      func(*key.Space) {},
		"model":        func(s *key.Space) { s.Model = "mr" },
		"revision":     func(s *key.Space) { s.Revision = "r" },
		"lora":         func(s *key.Space) { s.LoRA = "r" },
		"world":        func(s *key.Space) { s.World = 2 },
		"worker":       func(s *key.Space) { s.World, s.Worker = 2, 1 },
		"dtype":        func(s *key.Space) { s.DType = "fp8" },
		"chunk tokens": func(s *key.Space) { s.ChunkTokens = 16 },
		"method":       func(s *key.Space) { s.Method = key.XXH64 },
		"given":        func(s *key.Space) { s.Method = key.Given },
		"given name":   func(s *key.Space) { s.Method = "given:x" },
		"group":        func(s *key.Space) { s.Group = "r" },
		"salt":         func(s *key.Space) { s.Salt = "r" },
		"tag":          func(s *key.Space) { s.Tags = []key.Tag{{Name: "ab", Value: "c"}} },
		"shifted tag":  func(s *key.Space) { s.Tags = []key.Tag{{Name: "a", Value: "bc"}} },
		"two tags":     func(s *key.Space) { s.Tags = []key.Tag{{Name: "a"}, {Name: "bc"}} },
	} {
		s := space(key.SHA256, 256)
		change(&s)
		if other, taken := seen[id(t, s)]; taken {
			t.Errorf("%s and %s give the same id", name, other)
		}
		seen[id(t, s)] = name
	}
}

func TestValidate(t *testing.T) {
	long := strings.Repeat("x", key.MaxTextBytes+1)
	tests := map[string]struct {
		change func(*key.Space)
		want   string // what the error says to do
	}{
		"model":         {func(s *key.Space) { s.Model = "" }, "name the model"},
		"dtype":         {func(s *key.Space) { s.DType = "" }, "name element type and layout"},
		"world":         {func(s *key.Space) { s.World = 0 }, "at least 1"},
		"worker":        {func(s *key.Space) { s.Worker = 1 }, "a rank from 0 to 0"},
		"chunk tokens":  {func(s *key.Space) { s.ChunkTokens = 0 }, "1 to 65536"},
		"large chunks":  {func(s *key.Space) { s.ChunkTokens = key.MaxChunkTokens + 1 }, "1 to 65536"},
		"method":        {func(s *key.Space) { s.Method = "md5" }, `use "sha256"`},
		"no given name": {func(s *key.Space) { s.Method = "given:" }, `use "sha256"`},
		"long":          {func(s *key.Space) { s.LoRA = long }, "at most 1024"},
		"not UTF-8":     {func(s *key.Space) { s.Group = "\xff" }, "encode it"},
		"digest":        {func(s *key.Space) { s.Salt, s.SaltDigest = "a", key.Hash{1} }, "set only the salt"},
		"tag name":      {func(s *key.Space) { s.Tags = []key.Tag{{Value: "v"}} }, "name it"},
		"reserved tag":  {func(s *key.Space) { s.Tags = []key.Tag{{Name: "kv.x"}} }, "choose another"},
		"tag twice":     {func(s *key.Space) { s.Tags = []key.Tag{{Name: "a"}, {Name: "a"}} }, "give it one value"},
		"tag order":     {func(s *key.Space) { s.Tags = []key.Tag{{Name: "b"}, {Name: "a"}} }, "sort tags"},
		"many tags":     {func(s *key.Space) { s.Tags = make([]key.Tag, key.MaxTags+1) }, "at most 32"},
		"long tag":      {func(s *key.Space) { s.Tags = []key.Tag{{Name: "a", Value: long}} }, "at most 1024"},
	}
	for name, tt := range tests {
		s := space(key.SHA256, 256)
		tt.change(&s)
		err := s.Validate()
		if !errors.Is(err, key.ErrSpace) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, tt.want)
		}
		if _, err := s.ID(); !errors.Is(err, key.ErrSpace) {
			t.Errorf("%s: ID: error %v", name, err)
		}
		if _, err := key.NewBuilder(s); !errors.Is(err, key.ErrSpace) {
			t.Errorf("%s: NewBuilder: error %v", name, err)
		}
	}
}

// TestSaltIsNotShown: canonical forms leave the process.
func TestSaltIsNotShown(t *testing.T) {
	s := space(key.SHA256, 256)
	s.Salt = "hunter2"
	form, err := s.AppendCanonical(nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(form), s.Salt) {
		t.Errorf("the salt shows in %q", form)
	}
	shown := s.WithoutSalt()
	if shown.Salt != "" || id(t, shown) != id(t, s) || s.Salt == "" {
		t.Errorf("without its salt it is %+v", shown)
	}
	if _, err := key.NewBuilder(shown); !errors.Is(err, key.ErrSpace) {
		t.Errorf("a builder without the salt: error %v", err)
	}
	shown.Method = key.Given
	if _, err := key.NewBuilder(shown); err != nil {
		t.Errorf("given hashes need no salt: %v", err)
	}
}

func TestAppendCanonicalKeepsWhatWasThere(t *testing.T) {
	form, err := space(key.SHA256, 256).AppendCanonical([]byte("before"))
	if err != nil || !strings.HasPrefix(string(form), "beforekvstored-space-1") {
		t.Errorf("%q, %v", form, err)
	}
	form, err = key.Space{}.AppendCanonical([]byte("before"))
	if err == nil || !slices.Equal(form, []byte("before")) {
		t.Errorf("%q, %v", form, err)
	}
}
