package feedtest

import "encoding/binary"

// List is a list of values of Pack.
type List = []any

// Pack appends msgpack: lists, texts, whole numbers and nil.
func Pack(dst []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(dst, 0xc0)
	case int:
		return binary.BigEndian.AppendUint64(append(dst, 0xcf), uint64(v))
	case string:
		return append(append(dst, 0xd9, byte(len(v))), v...)
	case []any:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(len(v)))
		for _, e := range v {
			dst = Pack(dst, e)
		}
		return dst
	}
	panic("no form for it")
}

// BlockTokens is how many tokens the blocks of Stored have.
const BlockTokens = 2

// Stored is an event of blocks; the tokens of a block are its hash, twice.
func Stored(parent any, hashes ...int) List {
	all, tokens := List{}, List{}
	for _, h := range hashes {
		all, tokens = append(all, h), append(tokens, h, h)
	}
	return List{"BlockStored", all, parent, tokens, BlockTokens, nil, "GPU"}
}

// Removed is an event of blocks that are gone.
func Removed(hashes ...int) List {
	all := List{}
	for _, h := range hashes {
		all = append(all, h)
	}
	return List{"BlockRemoved", all, "GPU"}
}

// Tokens are those of a prompt of blocks of Stored.
func Tokens(hashes ...int) (tokens []uint32) {
	for _, h := range hashes {
		tokens = append(tokens, uint32(h), uint32(h))
	}
	return tokens
}

// Batch is a batch of events of rank 0.
func Batch(events ...any) []byte { return Pack(nil, List{1, List(events), 0}) }
