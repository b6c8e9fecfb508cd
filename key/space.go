package key

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"
)

// Limits of a space. They keep its canonical form short enough
// to be sent with every hello and stored with every record.
const (
	MaxChunkTokens = 1 << 16 // tokens in one chunk
	MaxTextBytes   = 1024    // bytes in any one text of a space
	MaxTags        = 32
)

// reservedPrefix starts the names of tags that are kept for kvstored.
const reservedPrefix = "kv."

// Method says where chain hashes come from.
type Method string

const (
	SHA256 Method = "sha256" // computed here, collision resistant: for everyone
	XXH64  Method = "xxh64"  // computed here, fast: for a single trusted tenant
	// Given means that the engine hands over its own chain hashes. A name may
	// follow a colon ("given:vllm-sha256-cbor"), so that the hashes of two
	// engines that compute them differently never meet.
	Given Method = "given"
)

// IsGiven reports whether the engine hands over the hashes.
func (m Method) IsGiven() bool { return m == Given || strings.HasPrefix(string(m), string(Given)+":") }

func (m Method) valid() bool {
	return m == SHA256 || m == XXH64 || m.IsGiven() && m != Given+":"
}

// Tag is a free property that also tells payloads apart.
type Tag struct{ Name, Value string }

// Space is all that must be equal for payloads to be exchangeable. It is plain
// data; nothing here changes its Tags.
type Space struct {
	Model    string // required
	Revision string // of the weights
	LoRA     string
	World    int // number of workers that share one model, at least 1
	Worker   int // rank of this one, 0 to World-1

	DType       string // fingerprint of element type and layout; required
	ChunkTokens int    // 1 to MaxChunkTokens
	Method      Method
	Group       string // KV cache group of hybrid models
	// Salt separates tenants: it changes the space and the chain hashes. It
	// is never written anywhere; SaltDigest is.
	Salt string
	// SaltDigest stands in for an unknown Salt in a space that was read back. Leave it
	// zero where the Salt is known.
	SaltDigest Hash
	Tags       []Tag // in byte order of the names, each name once
}

// Validate reports the first field that is wrong and what to write instead.
// The error wraps ErrSpace.
func (s Space) Validate() error {
	if err := s.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrSpace, err)
	}
	return nil
}

func (s Space) validate() error {
	switch {
	case s.Model == "":
		return errors.New("model is empty: name the model the payloads belong to")
	case s.DType == "":
		return errors.New("dtype is empty: name element type and layout, or unlike payloads would be exchanged")
	case s.World < 1 || s.World > math.MaxInt32:
		return fmt.Errorf("world size is %d: use the number of workers, at least 1", s.World)
	case s.Worker < 0 || s.Worker >= s.World:
		return fmt.Errorf("worker is %d: use a rank from 0 to %d", s.Worker, s.World-1)
	case s.ChunkTokens < 1 || s.ChunkTokens > MaxChunkTokens:
		return fmt.Errorf("chunk tokens is %d: use 1 to %d", s.ChunkTokens, MaxChunkTokens)
	case !s.Method.valid():
		return fmt.Errorf("hash method is %.64q: use %q, %q, %q or %q with a name", s.Method, SHA256, XXH64, Given, Given+":")
	case s.Salt != "" && s.SaltDigest != Hash{} && s.SaltDigest != saltDigest(s.Salt):
		return errors.New("salt and salt digest disagree: set only the salt")
	}
	for _, t := range [...]struct{ field, text string }{
		{"model", s.Model}, {"revision", s.Revision}, {"lora", s.LoRA}, {"dtype", s.DType},
		{"hash method", string(s.Method)}, {"group", s.Group}, {"salt", s.Salt},
	} {
		if err := validateText(t.field, t.text); err != nil {
			return err
		}
	}
	return validateTags(s.Tags)
}

func validateText(field, text string) error {
	if len(text) > MaxTextBytes {
		return fmt.Errorf("%s has %d bytes: use at most %d", field, len(text), MaxTextBytes)
	}
	if !utf8.ValidString(text) {
		return fmt.Errorf("%s is not valid UTF-8: encode it", field)
	}
	return nil
}

func validateTags(tags []Tag) error {
	if len(tags) > MaxTags {
		return fmt.Errorf("%d tags: use at most %d", len(tags), MaxTags)
	}
	for i, t := range tags {
		switch {
		case t.Name == "":
			return fmt.Errorf("tag %d has no name: name it", i)
		case strings.HasPrefix(t.Name, reservedPrefix):
			return fmt.Errorf("tag %.64q: names that start with %q are reserved: choose another", t.Name, reservedPrefix)
		case i > 0 && tags[i-1].Name == t.Name:
			return fmt.Errorf("tag %.64q appears twice: give it one value", t.Name)
		case i > 0 && tags[i-1].Name > t.Name:
			return fmt.Errorf("tag %.64q comes after %.64q: sort tags by name", t.Name, tags[i-1].Name)
		}
		if err := validateText("tag name", t.Name); err != nil {
			return err
		}
		if err := validateText("tag value", t.Value); err != nil {
			return err
		}
	}
	return nil
}
