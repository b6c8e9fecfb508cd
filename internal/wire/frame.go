package wire

import (
	"encoding/binary"
	"fmt"
)

const (
	// HeaderBytes is the length of the header before every body.
	HeaderBytes = 16
	// MaxPayloadBytes is the largest payload of one chunk.
	MaxPayloadBytes = 64 << 20
	// MaxBodyBytes is the largest body of a frame after hello that may be agreed on:
	// one payload of the largest size sent inline, and 8 MiB for the chain before it,
	// which is a prompt of 2 million tokens. A longer prompt is sent as hashes.
	MaxBodyBytes = MaxPayloadBytes + 8<<20
	// LeastBodyBytes is the least: a hello, or a job without references, fits well.
	LeastBodyBytes = 1 << 20
	// MaxHelloBytes is the largest body of a first frame: a space has at
	// most 7 texts and 32 tags of 2 texts, each at most 1 KiB.
	MaxHelloBytes = 128 << 10
)

// Header is what precedes every body, in this order.
type Header struct {
	BodyBytes uint32
	Kind      Kind
	Op        Op
	Code      Code   // of a reply; otherwise 0
	ID        uint64 // chosen by the client, echoed by the reply; in a push the job or fill
}

// Append appends the 16 bytes of h.
func (h Header) Append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.BodyBytes)
	dst = append(dst, byte(h.Kind), byte(h.Op))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.Code))
	return binary.LittleEndian.AppendUint64(dst, h.ID)
}

// DecodeHeader reads a header from the first HeaderBytes bytes of b, which
// must be there. It does not judge the fields.
func DecodeHeader(b []byte) Header {
	_ = b[HeaderBytes-1]
	return Header{
		BodyBytes: binary.LittleEndian.Uint32(b),
		Kind:      Kind(b[4]),
		Op:        Op(b[5]),
		Code:      Code(binary.LittleEndian.Uint16(b[6:])),
		ID:        binary.LittleEndian.Uint64(b[8:]),
	}
}

// Begin appends the header of a frame whose body is appended next; End, given
// len(dst) before Begin, then sets the length:
//
//	start := len(dst)
//	dst = wire.Begin(dst, wire.Header{Kind: wire.KindRequest, Op: wire.OpLookup, ID: id})
//	dst = request.Append(dst)
//	dst = wire.End(dst, start)
func Begin(dst []byte, h Header) []byte { return h.Append(dst) }

// End sets the body length of the frame that starts at start, filled up to a
// multiple of 8.
func End(dst []byte, start int) []byte {
	dst = appendPad(dst, len(dst)-start)
	SetBodyBytes(dst[start:], uint32(len(dst)-start-HeaderBytes))
	return dst
}

// SetBodyBytes sets the body length in the header that starts frame, for
// writers that send part of the body from elsewhere.
func SetBodyBytes(frame []byte, n uint32) { binary.LittleEndian.PutUint32(frame, n) }

// AppendRequest appends a whole request frame.
func AppendRequest(dst []byte, op Op, id uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindRequest, Op: op, ID: id}, m)
}

// AppendReply appends a whole reply frame that says ok.
func AppendReply(dst []byte, op Op, id uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindReply, Op: op, ID: id}, m)
}

// AppendPush appends a whole push frame for a job.
func AppendPush(dst []byte, op Op, job uint64, m Message) []byte {
	return appendFrame(dst, Header{Kind: KindPush, Op: op, ID: job}, m)
}

// AppendError appends a whole reply frame that refuses a request.
func AppendError(dst []byte, op Op, id uint64, code Code, m *ErrorReply) []byte {
	if code == CodeVersion {
		return appendVersionRefusal(dst, id, m.Text)
	}
	return appendFrame(dst, Header{Kind: KindReply, Op: op, Code: code, ID: id}, m)
}

func appendFrame(dst []byte, h Header, m Message) []byte {
	start := len(dst)
	return End(m.Append(Begin(dst, h)), start)
}

// Refusal is the body of a reply that refuses with code.
func Refusal(code Code, text string) *ErrorReply {
	m := &ErrorReply{Retry: code.retry(), Text: text}
	switch m.Retry {
	case RetryLater:
		m.AfterMillis = 100 // about what writing a window of chunks takes
	case RetryReconnect:
		m.AfterMillis = 500
	}
	return m
}

// Message is a body: every request, reply and push of this package.
type Message interface {
	// Append appends the encoded body.
	Append(dst []byte) []byte
	// Decode reads the body, keeping views into it. The receiver may be
	// used again for another body. On an error, which wraps ErrMalformed,
	// its fields mean nothing.
	Decode(body []byte) error
}

// name is the entry of a table of stable names, or the number itself for what
// a newer peer sent.
func name(names []string, n uint16, what string) string {
	if int(n) < len(names) && names[n] != "" {
		return names[n]
	}
	return fmt.Sprintf("%s(%d)", what, n)
}
