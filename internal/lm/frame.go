package lm

import (
	"bytes"
	"encoding/binary"
)

// A request is a frame of fixed size; all numbers are int32, little-endian:
//
//	0    command
//	4    length of the payload that follows a put
//	8    fmt, dtype, location
//	20   shape, 4 numbers
//	36   the key, spaces after it
//
// A reply is code, length, fmt, dtype, shape, location.
const (
	requestBytes = 186
	replyBytes   = 36
	metaBytes    = 28 // fmt, dtype, location and shape as they come in a request
	keyBytes     = requestBytes - 8 - metaBytes
)

// The commands.
const (
	cmdPut    = 1
	cmdGet    = 2
	cmdExist  = 3
	cmdList   = 4 // nobody has it
	cmdHealth = 5
)

const (
	codeOK   = 200
	codeFail = 400
)

// request is one frame; its slices lie in the buffer it was read from.
type request struct {
	command, length int32
	meta            []byte // metaBytes: what the reply to a get repeats
	key             []byte
}

func parseRequest(b *[requestBytes]byte) request {
	return request{
		command: int32(binary.LittleEndian.Uint32(b[0:])),
		length:  int32(binary.LittleEndian.Uint32(b[4:])),
		meta:    b[8 : 8+metaBytes],
		key:     bytes.TrimRight(b[8+metaBytes:], " \x00"),
	}
}

// noMeta is what a reply without a value says: KV_2LTD, float16, no shape.
var noMeta = func() (m [metaBytes]byte) {
	m[0], m[4] = 1, 2
	return m
}()

// putReply writes a reply; the location, third in the request, comes last.
func putReply(b *[replyBytes]byte, code, length int32, meta []byte) {
	binary.LittleEndian.PutUint32(b[0:], uint32(code))
	binary.LittleEndian.PutUint32(b[4:], uint32(length))
	copy(b[8:16], meta[0:8])
	copy(b[16:32], meta[12:28])
	copy(b[32:36], meta[8:12])
}
