package wire

import (
	"encoding/binary"
	"fmt"
)

// optionIgnorable marks tags that a daemon may pass over if it does not know
// them. Any other unknown tag refuses the request.
const optionIgnorable = 1 << 15

// ErrUnknownOption is wrapped, besides ErrMalformed, when a request carries an
// option that this side does not know and must not ignore. A server answers
// it with StatusUnknownOption.
var ErrUnknownOption = fmt.Errorf("%w: unknown option", ErrMalformed)

// options reads the list at the end of a request: u16 count, then for each
// u16 tag, u16 length and the bytes. No tag is defined yet.
func (c *cursor) options() {
	n := c.u16("options")
	for range n {
		if c.err != nil {
			return
		}
		tag := c.u16("option tag")
		c.bytes(int64(c.u16("option length")), "option")
		if c.err == nil && tag&optionIgnorable == 0 {
			c.err = fmt.Errorf("%w %d at byte %d", ErrUnknownOption, tag, c.off)
		}
	}
}

// appendOptions appends the empty list.
func appendOptions(dst []byte) []byte { return binary.LittleEndian.AppendUint16(dst, 0) }
