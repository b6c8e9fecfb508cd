package event_test

import (
	"encoding/binary"
	"fmt"
	"math"
)

// list and pairs are an array and a map, in order.
type (
	list  []any
	pairs []any // name, value, ...
)

// pack writes a value as msgpack, in the shortest form and as Python's library
// does.
func pack(v any) []byte {
	switch v := v.(type) {
	case nil:
		return []byte{0xc0}
	case int:
		return packInt(int64(v))
	case uint64:
		return binary.BigEndian.AppendUint64([]byte{0xcf}, v)
	case float64:
		return binary.BigEndian.AppendUint64([]byte{0xcb}, math.Float64bits(v))
	case bool:
		if v {
			return []byte{0xc3}
		}
		return []byte{0xc2}
	case string:
		return append(head(len(v), 0xa0, 31, 0xd9, 0xda, 0xdb), v...)
	case []byte:
		return append(head(len(v), 0, -1, 0xc4, 0xc5, 0xc6), v...)
	case list:
		out := head(len(v), 0x90, 15, 0, 0xdc, 0xdd)
		for _, one := range v {
			out = append(out, pack(one)...)
		}
		return out
	case pairs:
		out := head(len(v)/2, 0x80, 15, 0, 0xde, 0xdf)
		for _, one := range v {
			out = append(out, pack(one)...)
		}
		return out
	default:
		panic(fmt.Sprintf("%T", v))
	}
}

func packInt(n int64) []byte {
	switch {
	case n >= -32 && n < 128:
		return []byte{byte(n)}
	case n >= 0 && n < 1<<8:
		return []byte{0xcc, byte(n)}
	case n >= 0 && n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{0xcd}, uint16(n))
	case n >= 0 && n < 1<<32:
		return binary.BigEndian.AppendUint32([]byte{0xce}, uint32(n))
	case n >= -1<<7 && n < 0:
		return []byte{0xd0, byte(n)}
	case n >= -1<<15 && n < 0:
		return binary.BigEndian.AppendUint16([]byte{0xd1}, uint16(n))
	case n >= -1<<31 && n < 0:
		return binary.BigEndian.AppendUint32([]byte{0xd2}, uint32(n))
	default:
		return binary.BigEndian.AppendUint64([]byte{0xd3}, uint64(n))
	}
}

// head is the head of a value of a length: in the tag itself, or behind tags for
// one, two and four bytes. The tag for one is 0 where there is none.
func head(n int, fix byte, most int, one, two, four byte) []byte {
	switch {
	case n <= most:
		return []byte{fix | byte(n)}
	case one != 0 && n < 1<<8:
		return []byte{one, byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{two}, uint16(n))
	default:
		return binary.BigEndian.AppendUint32([]byte{four}, uint32(n))
	}
}
