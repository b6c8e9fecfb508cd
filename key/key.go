package key

import (
	"encoding/hex"
	"errors"
)

// The errors of this package arrive wrapped with the mistake and its remedy.
var (
	ErrSpace = errors.New("invalid space") // a Space that does not validate
	ErrChain = errors.New("invalid chain") // tokens, hashes or options a Builder refuses
)

// Hash is the 128-bit hash of all tokens from the start of the prompt to the
// end of one chunk. The zero Hash names no chunk: as a parent it stands for
// the root. It is an alias so that slices of hashes can be handed to packages
// that know nothing of keys.
type Hash = [16]byte

// SpaceID is the 128-bit digest of a Space's canonical form.
type SpaceID [16]byte

// String returns 32 lower-case hexadecimal digits.
func (id SpaceID) String() string { return hex.EncodeToString(id[:]) }

// Key names one chunk of one space. It is comparable and holds no pointers.
type Key struct {
	Space SpaceID
	Hash  Hash
}

// String returns space id and hash as hexadecimal digits with a slash between.
func (k Key) String() string { return k.Space.String() + "/" + hex.EncodeToString(k.Hash[:]) }
