package key

import (
	"crypto/sha256"
	"encoding/binary"
)

// Domain strings keep digests of different things apart and carry the version
// of what follows them. 16 bytes each.
const (
	spaceDomain = "kvstored-space-1"
	chainDomain = "kvstored-chain-1"
	saltDomain  = "kvstored-salt-01"
)

// ID returns the digest of the canonical form. The error is that of Validate.
func (s Space) ID() (SpaceID, error) {
	form, err := s.AppendCanonical(make([]byte, 0, 256))
	if err != nil {
		return SpaceID{}, err
	}
	return SpaceID(digest(form)), nil
}

// AppendCanonical appends the canonical form, as the package comment defines
// it. The error is that of Validate; dst is returned unchanged then.
func (s Space) AppendCanonical(dst []byte) ([]byte, error) {
	if err := s.Validate(); err != nil {
		return dst, err
	}
	dst = append(dst, spaceDomain...)
	dst = appendText(dst, s.Model)
	dst = appendText(dst, s.Revision)
	dst = appendText(dst, s.LoRA)
	dst = appendUint(dst, s.World)
	dst = appendUint(dst, s.Worker)
	dst = appendText(dst, s.DType)
	dst = appendUint(dst, s.ChunkTokens)
	dst = appendText(dst, string(s.Method))
	dst = appendText(dst, s.Group)
	if d := s.saltDigest(); d == (Hash{}) {
		dst = appendText(dst, "")
	} else {
		dst = appendText(dst, string(d[:]))
	}
	dst = appendUint(dst, len(s.Tags))
	for _, t := range s.Tags {
		dst = appendText(dst, t.Name)
		dst = appendText(dst, t.Value)
	}
	return dst, nil
}

// WithoutSalt returns s with the digest of its salt instead of the salt: what may
// be shown and kept. It has the same id.
func (s Space) WithoutSalt() Space {
	s.Salt, s.SaltDigest = "", s.saltDigest()
	return s
}

// saltDigest is zero without a salt.
func (s Space) saltDigest() Hash {
	if s.Salt == "" {
		return s.SaltDigest
	}
	return saltDigest(s.Salt)
}

func saltDigest(salt string) Hash { return digest([]byte(saltDomain + salt)) }

// chainSeed stands in for the hash before the first chunk. It leaves out all
// of the space that does not change what the tokens mean to the hash, so that
// one chain serves all ranks of a model.
func (s Space) chainSeed() Hash {
	b := []byte(chainDomain)
	b = appendText(b, string(s.Method))
	b = appendUint(b, s.ChunkTokens)
	b = appendText(b, s.Salt)
	return digest(b)
}

// digest is SHA-256 truncated to 128 bits.
func digest(p []byte) Hash {
	sum := sha256.Sum256(p)
	return Hash(sum[:])
}

func appendUint(dst []byte, n int) []byte {
	return binary.LittleEndian.AppendUint32(dst, uint32(n))
}

func appendText(dst []byte, s string) []byte {
	return append(appendUint(dst, len(s)), s...)
}
