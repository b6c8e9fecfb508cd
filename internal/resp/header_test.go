package resp

import (
	"bytes"
	"testing"
	"time"
)

func FuzzHeader(f *testing.F) {
	f.Add([]byte("KVB1\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00a\x00\x00\x00\x00\x00\x00\x00value"))
	f.Add([]byte("KVB1\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h, g header
		if !h.parse(b) {
			return
		}
		again := make([]byte, headerBytes(len(h.name))+len(h.value))
		putHeader(again, h.name, h.expires)
		copy(again[headerBytes(len(h.name)):], h.value)
		if !g.parse(again) || !bytes.Equal(g.name, h.name) || g.expires != h.expires || !bytes.Equal(g.value, h.value) {
			t.Errorf("%x came back as %x", b, again)
		}
		if g.of(append([]byte("x"), h.name...), time.Now()) {
			t.Error("a value of another name")
		}
	})
}
