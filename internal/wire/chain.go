package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

// Form says how a chain is given.
type Form uint8

// The forms.
const (
	FormTokens Form = 0 // token ids; the daemon computes the hashes
	FormHashes Form = 1 // hashes the engine computed, and the tokens of each chunk
	FormRef    Form = 2 // the chain of a live job or fill of this connection, so that nothing is sent twice
)

func (f Form) String() string { return name(formNames[:], uint16(f), "form") }

var formNames = [...]string{"tokens", "hashes", "ref"}

const (
	chainSaveUnfull = 1 << 0
	chainAlone      = 1 << 1
)

// Chain says which chunks a request is about. In every form each chunk
// number and every count in the request and its reply starts after the first
// Skip chunks: these only give the position.
type Chain struct {
	Space      uint32 // handle; passed over in FormRef
	Form       Form
	SaveUnfull bool   // a last chunk of fewer tokens counts too; passed over in FormRef
	Alone      bool   // FormHashes: the chunks are no prompt, each is the first of its own
	Skip       uint32 // leading chunks left out; in FormRef on top of what that chain leaves out
	Tokens     U32s   // FormTokens
	Width      uint16 // FormHashes: bytes of each hash, 8, 16 or 32
	Lengths    U32s   // FormHashes: tokens of each chunk
	Hashes     []byte // FormHashes: Width bytes for each chunk
	Ref        uint64 // FormRef: id of the job or fill
}

func (ch *Chain) append(dst []byte) []byte {
	flags := byte(0)
	if ch.SaveUnfull {
		flags |= chainSaveUnfull
	}
	if ch.Alone {
		flags |= chainAlone
	}
	dst = binary.LittleEndian.AppendUint32(dst, ch.Space)
	dst = append(dst, byte(ch.Form), flags)
	dst = binary.LittleEndian.AppendUint16(dst, ch.Width)
	dst = binary.LittleEndian.AppendUint32(dst, ch.Skip)
	switch ch.Form {
	case FormTokens:
		dst = binary.LittleEndian.AppendUint32(dst, uint32(ch.Tokens.Len()))
		return append(dst, ch.Tokens...)
	case FormHashes:
		dst = binary.LittleEndian.AppendUint32(dst, uint32(ch.Lengths.Len()))
		dst = append(dst, ch.Lengths...)
		return append(dst, ch.Hashes...)
	default:
		dst = binary.LittleEndian.AppendUint32(dst, 1)
		return binary.LittleEndian.AppendUint64(dst, ch.Ref)
	}
}

func (c *cursor) chain(ch *Chain) {
	*ch = Chain{Space: c.u32("chain space"), Form: Form(c.u8("chain form"))}
	known := uint8(chainSaveUnfull)
	if ch.Form == FormHashes {
		known |= chainAlone
	}
	flags := c.flags(known, "chain flags")
	ch.SaveUnfull, ch.Alone = flags&chainSaveUnfull != 0, flags&chainAlone != 0
	ch.Width = c.u16("chain hash width")
	ch.Skip = c.u32("chain skip")
	n := c.u32("chain count")
	if c.err != nil {
		return
	}
	switch ch.Form {
	case FormTokens:
		ch.Tokens = c.list(n, 4, "chain tokens")
	case FormHashes:
		c.hashWidth(ch.Width)
		if n > key.MaxChunks {
			c.fail("chain count", "%d chunks, use at most %d", n, key.MaxChunks)
		}
		ch.Lengths = c.list(n, 4, "chain lengths")
		ch.Hashes = c.list(n, int(ch.Width), "chain hashes")
	case FormRef:
		if n != 1 {
			c.fail("chain count", "%d, a reference counts 1", n)
		}
		ch.Ref = c.u64("chain reference")
	default:
		c.fail("chain form", "%d is unknown", ch.Form)
	}
}

func (c *cursor) hashWidth(width uint16) {
	if width != 8 && width != 16 && width != 32 {
		c.fail("hash width", "%d, use 8, 16 or 32", width)
	}
}
