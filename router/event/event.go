package event

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kvstored/kvstored/router/index"
)

// Errors of decoding, besides [ErrSyntax].
var (
	ErrTooLarge      = errors.New("batch is too large")
	ErrTooManyEvents = errors.New("too many events in one batch")
	ErrTooManyHashes = errors.New("too many hashes in one event")
	ErrNoKind        = errors.New("event without a kind")
	ErrBlockTokens   = errors.New("wrong number of tokens in a block")
	ErrCount         = errors.New("numbers of hashes and tokens do not fit")
	ErrDialect       = errors.New("unknown dialect")
)

// Dialect is whose arrays are decoded.
type Dialect uint8

// The dialects.
const (
	VLLM Dialect = iota
	SGLang
)

// Limits bound a batch. The zero Limits are the defaults.
type Limits struct {
	Bytes  int // of a batch; 0 = 64 MiB
	Events int // of a batch; 0 = 65,536
	Hashes int // of an event; 0 = 65,536
}

const (
	defaultBytes  = 64 << 20
	defaultEvents = 65536
	defaultHashes = 65536
	maxTokens     = 1 << 20 // of a block
)

func (l Limits) filled() Limits {
	for _, f := range []struct {
		value   *int
		initial int
	}{{&l.Bytes, defaultBytes}, {&l.Events, defaultEvents}, {&l.Hashes, defaultHashes}} {
		if *f.value <= 0 {
			*f.value = f.initial
		}
	}
	return l
}

// Kind is what an event says.
type Kind uint8

// The kinds of events.
const (
	Stored  Kind = iota // blocks are there
	Removed             // blocks are gone from a medium
	Cleared             // nothing is there any more

	unknown
)

// String is the kind as engines call it.
func (k Kind) String() string {
	return [...]string{"BlockStored", "BlockRemoved", "AllBlocksCleared"}[k]
}

// Batch is one message of a publisher.
type Batch struct {
	Time    float64 // seconds since 1970, by the publisher's clock
	Rank    uint32  // data-parallel rank
	HasRank bool    // else the rank was not said
	Events  []Event // in order
	Unknown int     // events of kinds and of media that came later, which were passed over
}

// Event is one change of an engine's cache. A hash of more than 8 bytes is here
// by its first 8, big-endian, as [ShortHash] has it: kvstored keeps the first 16
// of an engine's, so that both join. vLLM's own integers are the last 8 and join
// with nothing but themselves. All slices are the caller's.
type Event struct {
	Kind        Kind
	Hashes      []uint64
	Parent      index.Parent // of Stored
	Tokens      []uint32     // of Stored; of pairs each first, and the last one's second
	BlockTokens int          // of Stored; 0 in a placeholder
	Medium      index.Medium // GPU if none was said
	Group       int          // 0 if none was said
	GroupKind   string       // "full_attention", "mamba", ...; empty if not said
	Window      int          // tokens; 0 if not said
	LoRA        string       // name, or "#" and the id if only that was said
	Salt        string       // SGLang's cache_salt
	Locality    string       // "LOCAL", "REMOTE" or empty
	Space       string       // kvstored's id of the space; empty from engines
	ChunkTokens int          // tokens in each block of a kvstored placeholder; else 0

	// Components are SGLang's, if it says them: "FULL", "SWA", "MAMBA".
	Components []string

	// Pairs says that tokens were pairs of neighbours, as with EAGLE; Extra, that
	// blocks depend on more than their tokens, such as images. Sequence hashes of the
	// tokens alone do not name such blocks.
	Pairs, Extra bool
}

// ahead is how many tokens an event has behind its last block.
func (e *Event) ahead() int {
	if e.Pairs {
		return 1
	}
	return 0
}

// Placeholder reports whether a Stored event names blocks without saying what
// they are: only one who knows their hashes can use it.
func (e *Event) Placeholder() bool {
	return e.Kind == Stored && e.BlockTokens == 0 && len(e.Tokens) == 0
}

// ShortHash is how the index knows a block by a hash of 8 bytes or more: the
// first 8, big-endian. kvstored keeps a hash of 8 bytes with zeros behind it.
func ShortHash(hash []byte) uint64 { return binary.BigEndian.Uint64(hash) }

// media leads from the names of media in use to media. The grouping is that
// of Dynamo's router (ai-dynamo/dynamo, lib/kv-router).
var media = map[string]index.Medium{
	"": index.GPU, "GPU": index.GPU, "DEVICE": index.GPU,
	"CPU": index.CPU, "CPU_PINNED": index.CPU, "CPU_TIER1": index.CPU,
	"CPU_TIER2": index.Disk, "DISK": index.Disk, "NVME": index.Disk, "STORAGE": index.Disk,
	"EXTERNAL": index.Shared, "NETWORK": index.Shared, "REMOTE": index.Shared, "SHARED": index.Shared,
}

// Decode reads a batch.
func Decode(in []byte, d Dialect, l Limits) (Batch, error) {
	l = l.filled()
	if d > SGLang {
		return Batch{}, fmt.Errorf("decode events: %w: %d", ErrDialect, d)
	}
	if len(in) > l.Bytes {
		return Batch{}, fmt.Errorf("decode events: %d bytes: %w; at most %d", len(in), ErrTooLarge, l.Bytes)
	}
	c := &decoder{reader: reader{in: in, size: len(in)}, dialect: d, limits: l, room: 2*len(in) + spareRoom}
	c.decode()
	if c.err == nil && len(c.in) > 0 {
		c.fail(ErrSyntax, "%d bytes behind the batch", len(c.in))
	}
	if c.err != nil {
		return Batch{}, fmt.Errorf("decode events, %d of them read: %w", len(c.batch.Events), c.err)
	}
	return c.batch, nil
}

// decoder reads one batch.
type decoder struct {
	reader
	dialect Dialect
	limits  Limits
	batch   Batch

	room      int      // bytes that what is decoded may still take
	elsewhere bool     // the event is of a medium that is not known
	onlyNames []string // of the event: texts that are the only extra key of a block
}

// spareRoom is the bytes that a batch may take, decoded, beside twice those that came.
const spareRoom = 1 << 20

// spend takes room for so many values of some bytes each, before they are decoded.
func (c *decoder) spend(n, each int) bool {
	if c.room -= n * each; c.room < 0 {
		c.fail(ErrTooLarge, "decoded it takes more than twice its %d bytes", c.size)
	}
	return c.room >= 0
}

func (c *decoder) decode() {
	if c.peek() != kindMap {
		n := c.length(kindArray, "the batch")
		if n > 0 && c.peek() == kindString { // a tag
			c.skip(1)
			n--
		}
		if n < 2 && c.err == nil {
			c.fail(ErrSyntax, "a batch of %d values; a time, events and perhaps a rank are meant", n)
		}
		for i := 0; i < n && c.err == nil; i++ {
			c.batchField([]string{"ts", "events", "data_parallel_rank", ""}[min(i, 3)])
		}
		return
	}
	seen := false
	for range c.length(kindMap, "the batch") {
		name := string(c.raw("a name"))
		seen = seen || name == "events"
		if c.batchField(name); c.err != nil {
			return
		}
	}
	if !seen {
		c.fail(ErrSyntax, "a batch without events")
	}
}

func (c *decoder) batchField(name string) {
	switch name {
	case "ts":
		c.batch.Time = c.float("ts")
	case "events":
		n := c.length(kindArray, "events")
		if n > c.limits.Events {
			c.fail(ErrTooManyEvents, "%d, at most %d", n, c.limits.Events)
		}
		for i := 0; i < n && c.err == nil; i++ {
			c.event()
		}
	case "data_parallel_rank", "dp_rank":
		if !c.null() {
			c.batch.Rank, c.batch.HasRank = uint32(c.number(name, 1<<32-1)), true
		}
	default:
		c.skip(maxNesting)
	}
}
