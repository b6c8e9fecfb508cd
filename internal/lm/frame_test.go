package lm

import (
	"bytes"
	"testing"
)

func FuzzRequest(f *testing.F) {
	f.Add(bytes.Repeat([]byte{1, 0, 0, 0}, 47))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b [requestBytes]byte
		copy(b[:], in)
		r := parseRequest(&b)
		if len(r.meta) != metaBytes || len(r.key) > keyBytes || bytes.HasSuffix(r.key, []byte(" ")) {
			t.Errorf("%+v", r)
		}
		var reply [replyBytes]byte
		putReply(&reply, codeOK, r.length, r.meta)
		if !bytes.Equal(reply[8:16], b[8:16]) || !bytes.Equal(reply[16:32], b[20:36]) || !bytes.Equal(reply[32:], b[16:20]) {
			t.Errorf("%x is answered with %x", b, reply)
		}
	})
}
