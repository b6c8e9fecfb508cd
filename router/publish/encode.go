package publish

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

// media names the tiers by place, as routers know them, and localities says whose
// they are: a shared tier is not the publisher's alone.
var (
	media      = [...]string{"CPU", "STORAGE", "SHARED"}
	localities = [...]string{"LOCAL", "LOCAL", "REMOTE"}
)

// Spaces says what the id of a space stands for, if that is known. Chunks of other
// spaces are left out: they are told when it is.
type Spaces func(key.SpaceID) (key.Space, bool)

// encoder writes batches in msgpack (github.com/msgpack/msgpack, spec.md).
type encoder struct {
	b      []byte
	spaces Spaces
}

// batch is a whole batch: [time, [event, ...], rank].
func (e *encoder) batch(at time.Time, list []index.Change) []byte {
	e.b = append(e.b[:0], 0x93, 0xcb)
	e.b = binary.BigEndian.AppendUint64(e.b, math.Float64bits(float64(at.UnixMicro())/1e6))
	head := len(e.b)
	e.array(math.MaxUint16 + 1) // of five bytes
	n := uint32(0)
	for len(list) > 0 {
		run := together(list)
		if e.event(list[:run]) {
			n++
		}
		list = list[run:]
	}
	binary.BigEndian.PutUint32(e.b[head+1:], n)
	e.b = append(e.b, 0)
	return e.b
}

// maxRun is the most blocks of one event: consumers bound them.
const maxRun = 256

// together is how many of the leading changes are one event: those of one kind, tier
// and space, and of stored ones a chain of chunks with equally many tokens.
func together(list []index.Change) int {
	first := &list[0]
	n := 1
	for ; n < min(len(list), maxRun); n++ {
		c := &list[n]
		switch {
		case c.Kind != first.Kind || c.Place != first.Place || c.Key.Space != first.Key.Space:
			return n
		case c.Kind == index.Stored && (c.Parent != list[n-1].Key.Hash || c.Tokens != first.Tokens):
			return n
		}
	}
	return n
}

// event encodes one event; false: nothing, as its space or its tier is not known.
func (e *encoder) event(run []index.Change) bool {
	c := &run[0]
	if c.Kind == index.Cleared {
		e.fields(1)
		e.text("type", "AllBlocksCleared")
		return true
	}
	space, known := e.spaces(c.Key.Space)
	if !known || int(c.Place) >= len(media) {
		return false
	}
	if c.Kind == index.Removed {
		e.fields(5)
		e.text("type", "BlockRemoved")
	} else {
		e.fields(11)
		e.text("type", "BlockStored")
	}
	e.name("block_hashes")
	e.array(len(run))
	for i := range run {
		e.hash(run[i].Key.Hash)
	}
	e.text("medium", media[c.Place])
	e.text("locality", localities[c.Place])
	e.text("space", c.Key.Space.String())
	if c.Kind == index.Stored {
		e.stored(run, &space)
	}
	return true
}

// stored is what a stored event has besides: the parent, and how many tokens a block
// has. The tokens themselves are not known, and so block_size is 0, as in vLLM's
// placeholders.
func (e *encoder) stored(run []index.Change, space *key.Space) {
	each := int(run[0].Tokens)
	if each == 0 {
		each = space.ChunkTokens
	}
	e.name("parent_block_hash")
	if run[0].Parent == (key.Hash{}) {
		e.b = append(e.b, 0xc0)
	} else {
		e.hash(run[0].Parent)
	}
	e.name("token_ids")
	e.array(0)
	e.name("block_size")
	e.number(0)
	e.name("tokens")
	e.number(uint64(each))
	e.name("lora_id")
	e.b = append(e.b, 0xc0)
	e.name("lora_name")
	if space.LoRA == "" {
		e.b = append(e.b, 0xc0)
	} else {
		e.str(space.LoRA)
	}
}

// hash is a hash in bytes; one that an engine gave in 8 bytes is the number that
// it was.
func (e *encoder) hash(h key.Hash) {
	if binary.BigEndian.Uint64(h[8:]) == 0 {
		e.b = binary.BigEndian.AppendUint64(append(e.b, 0xcf), binary.BigEndian.Uint64(h[:8]))
		return
	}
	e.b = append(append(e.b, 0xc4, byte(len(h))), h[:]...)
}

func (e *encoder) text(name, value string) {
	e.name(name)
	e.str(value)
}

func (e *encoder) name(s string) { e.b = append(append(e.b, 0xa0|byte(len(s))), s...) }

func (e *encoder) str(s string) {
	e.b = append(binary.BigEndian.AppendUint16(append(e.b, 0xda), uint16(len(s))), s...)
}

func (e *encoder) fields(n int) { e.b = append(e.b, 0x80|byte(n)) }

func (e *encoder) array(n int) {
	switch {
	case n < 16:
		e.b = append(e.b, 0x90|byte(n))
	case n <= math.MaxUint16:
		e.b = binary.BigEndian.AppendUint16(append(e.b, 0xdc), uint16(n))
	default:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xdd), uint32(n))
	}
}

func (e *encoder) number(n uint64) {
	switch {
	case n < 128:
		e.b = append(e.b, byte(n))
	case n <= math.MaxUint32:
		e.b = binary.BigEndian.AppendUint32(append(e.b, 0xce), uint32(n))
	default:
		e.b = binary.BigEndian.AppendUint64(append(e.b, 0xcf), n)
	}
}
