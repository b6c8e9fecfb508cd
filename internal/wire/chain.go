package wire

import (
	"encoding/binary"

	"github.com/kvstored/kvstored/key"
)

const (
	chainSaveUnfull = 1 << 0
	chainAlone      = 1 << 1
)

// Chain says which chunks a request is about. In every form each chunk
// number and every count in the request and its reply starts after the first
// Skip chunks: these only give the position.
type Chain struct {
	Space      uint32 // handle; passed over in FormRef and FormKept
	Form       Form
	SaveUnfull bool   // a last chunk of fewer tokens counts too; of FormTokens and FormHashes
	Alone      bool   // FormHashes: the chunks are no prompt, each is the first of its own
	Skip       uint32 // leading chunks left out; in FormRef on top of what that chain leaves out
	Tokens     U32s   // FormTokens
	Width      uint16 // FormHashes: bytes of each hash, 8, 16 or 32
	LastTokens uint32 // FormHashes: of the last chunk; 0: it is full, as all others are
	Hashes     []byte // FormHashes: Width bytes for each chunk
	// ID is that of the job or fill (FormRef), of the kept chain (FormKept), or the
	// number under which the connection is to keep this one; 0: it need not.
	ID uint64
}

// Chunks is how many hashes there are.
func (ch *Chain) Chunks() int { return len(ch.Hashes) / max(1, int(ch.Width)) }

// appendChain is by hand, as is readChain: what the items are depends on the form.
func appendChain(dst []byte, ch *Chain) []byte {
	flags := byte(0)
	if ch.SaveUnfull {
		flags |= chainSaveUnfull
	}
	if ch.Alone {
		flags |= chainAlone
	}
	dst = binary.LittleEndian.AppendUint32(dst, ch.Space)
	dst = append(dst, byte(ch.Form), flags, 0, 0)
	dst = binary.LittleEndian.AppendUint32(dst, ch.Skip)
	dst = binary.LittleEndian.AppendUint32(dst, ch.LastTokens)
	dst = binary.LittleEndian.AppendUint64(dst, ch.ID)
	switch ch.Form {
	case FormTokens:
		return appendArray(dst, 4, ch.Tokens)
	case FormHashes:
		return appendArray(dst, int(ch.Width), ch.Hashes)
	}
	return appendZero(dst, 8)
}

func readChain(c *cursor, ch *Chain) {
	*ch = Chain{Space: c.u32("chain space"), Form: Form(c.u8("chain form"))}
	known := uint8(chainSaveUnfull)
	if ch.Form == FormHashes {
		known |= chainAlone
	}
	flags := c.flags(known, "chain flags")
	ch.SaveUnfull, ch.Alone = flags&chainSaveUnfull != 0, flags&chainAlone != 0
	c.zero(2, "chain")
	ch.Skip, ch.LastTokens, ch.ID = c.u32("chain skip"), c.u32("chain last tokens"), c.u64("chain id")
	if ch.Form != FormHashes && ch.LastTokens != 0 {
		c.fail("chain last tokens", "%d, only a chain of hashes has them", ch.LastTokens)
	}
	switch ch.Form {
	case FormTokens:
		ch.Tokens = c.numbers(4, "chain tokens")
	case FormHashes:
		ch.Hashes, ch.Width = hashesIn(c)
	case FormRef, FormKept, FormNone:
		if n, _ := c.arrayHead("chain items"); n != 0 {
			c.fail("chain items", "%d, a chain of form %s has none", n, ch.Form)
		}
	default:
		c.fail("chain form", "%d is unknown", ch.Form)
	}
}

// hashes reads an array of hashes of one width.
func hashesIn(c *cursor) ([]byte, uint16) {
	n, width := c.arrayHead("chain hashes")
	switch {
	case n == 0:
		return nil, 16
	case width != 8 && width != 16 && width != 32:
		c.fail("hash width", "%d, use 8, 16 or 32", width)
	case n > key.MaxChunks:
		c.fail("chain hashes", "%d chunks, use at most %d", n, key.MaxChunks)
	}
	return c.padded(n*int64(width), 0, "chain hashes"), uint16(width)
}
