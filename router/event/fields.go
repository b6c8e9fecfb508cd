package event

import (
	"fmt"
	"strings"

	"github.com/kvstored/kvstored/router/index"
)

// event reads one event and checks that its parts fit.
func (c *decoder) event() {
	e := Event{}
	c.onlyNames, c.elsewhere = nil, false
	if c.peek() == kindMap {
		c.mapped(&e)
	} else {
		c.positional(&e)
	}
	if e.Kind == unknown || c.elsewhere {
		c.batch.Unknown++
		return
	}
	if c.err == nil {
		c.check(&e)
	}
	if c.err == nil {
		c.batch.Events = append(c.batch.Events, e)
	}
}

// check compares the numbers of a Stored event, and what only the whole event
// can tell.
func (c *decoder) check(e *Event) {
	for _, name := range c.onlyNames {
		e.Extra = e.Extra || name != e.LoRA
	}
	switch {
	case e.Kind != Stored || e.Placeholder():
	case e.BlockTokens == 0:
		c.fail(ErrBlockTokens, "%d tokens in blocks of 0", len(e.Tokens))
	case len(e.Tokens) != len(e.Hashes)*e.BlockTokens+e.ahead():
		c.fail(ErrCount, "%d hashes, %d tokens, %d in a block", len(e.Hashes), len(e.Tokens), e.BlockTokens)
	}
}

// tag reads the kind of an event.
func (c *decoder) tag(e *Event) {
	switch string(c.raw("the kind of an event")) {
	case "BlockStored":
		e.Kind = Stored
	case "BlockRemoved":
		e.Kind = Removed
	case "AllBlocksCleared":
		e.Kind = Cleared
	default:
		e.Kind = unknown
	}
}

func (c *decoder) mapped(e *Event) {
	tagged := false
	for range c.length(kindMap, "an event") {
		name := string(c.raw("a name"))
		switch {
		case name == "type":
			tagged = true
			c.tag(e)
		case e.Kind == unknown:
			c.skip(maxNesting)
		default:
			c.field(e, name)
		}
		if c.err != nil {
			return
		}
	}
	if !tagged {
		c.fail(ErrNoKind, "an event without a type")
	}
}

// The fields of arrays, in order, up to where versions part.
var (
	vllmFields    = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name"}
	sglangFields  = []string{"block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "cache_salt", "session_id", "lora_name"}
	removedFields = []string{"block_hashes", "medium"}
)

func (c *decoder) positional(e *Event) {
	n := c.length(kindArray, "an event")
	if n == 0 {
		c.fail(ErrNoKind, "an empty event")
		return
	}
	c.tag(e)
	if n == 1 && (e.Kind == Stored || e.Kind == Removed) {
		c.fail(ErrSyntax, "an event without hashes")
	}
	names := c.names(e.Kind)
	t := tail{}
	for i := 0; i < n-1 && c.err == nil; i++ {
		switch {
		case e.Kind == unknown:
			c.skip(maxNesting)
		case i < len(names) && (i < listFields || c.peek() != kindArray):
			c.field(e, names[i])
		default:
			c.tail(e, &t)
		}
	}
}

// listFields is up to where an array is the value of the field of its place.
// Behind it, an array stands for something that came later.
const listFields = 3

// names are the fields whose places are sure.
func (c *decoder) names(k Kind) []string {
	switch {
	case k == Stored && c.dialect == SGLang:
		return sglangFields
	case k == Stored:
		return vllmFields
	case k == Removed:
		return removedFields
	default:
		return nil
	}
}

// tail counts values behind the fields whose places are sure. Versions differ
// in what stands there; kinds of values tell it.
type tail struct{ numbers int }

func (c *decoder) tail(e *Event, t *tail) {
	switch k := c.peek(); k {
	case kindInt:
		name := []string{"group_idx", "kv_cache_spec_sliding_window", "a later number"}[min(t.numbers, 2)]
		t.numbers++
		c.field(e, name)
	case kindString:
		switch s := c.text("text"); {
		case s == "LOCAL" || s == "REMOTE":
			e.Locality = s
		case e.GroupKind == "" && e.Kind == Stored:
			e.GroupKind = s
		}
	case kindArray:
		if c.dialect == SGLang {
			c.field(e, "component_types")
		} else {
			c.field(e, "extra_keys")
		}
	default:
		c.skip(maxNesting)
	}
}

// field reads the value of a field by its name, as maps have them.
func (c *decoder) field(e *Event, name string) {
	if read, known := fields[name]; known {
		read(c, e)
	} else {
		c.skip(maxNesting)
	}
}

// fields are how the values of fields are read.
var fields = map[string]func(*decoder, *Event){
	"block_hashes": func(c *decoder, e *Event) { e.Hashes = c.hashes() },
	"parent_block_hash": func(c *decoder, e *Event) {
		if !c.null() {
			e.Parent = index.After(c.hash("parent"))
		}
	},
	"token_ids":                    (*decoder).tokens,
	"block_size":                   func(c *decoder, e *Event) { e.BlockTokens = c.optional("block_size", maxTokens) },
	"medium":                       (*decoder).medium,
	"lora_id":                      (*decoder).loraID,
	"lora_name":                    (*decoder).loraName,
	"cache_salt":                   func(c *decoder, e *Event) { e.Salt = c.text("cache_salt") },
	"group_idx":                    func(c *decoder, e *Event) { e.Group = c.optional("group_idx", maxNumber) },
	"kv_cache_spec_sliding_window": func(c *decoder, e *Event) { e.Window = c.optional("window", maxNumber) },
	"kv_cache_spec_kind":           func(c *decoder, e *Event) { e.GroupKind = c.text("kv_cache_spec_kind") },
	"locality":                     func(c *decoder, e *Event) { e.Locality = c.text("locality") },
	"extra_keys":                   (*decoder).extraKeys,
	"block_mm_infos":               func(c *decoder, e *Event) { e.Extra = c.extra(nil) || e.Extra },
	"component_types":              (*decoder).components,
	"space":                        func(c *decoder, e *Event) { e.Space = c.text("space") },
	"tokens":                       func(c *decoder, e *Event) { e.ChunkTokens = c.optional("tokens", maxTokens) },
}

// textBytes is what a text of a list takes, beside its bytes.
const textBytes = 16

// maxNumber bounds groups and windows.
const maxNumber = 1<<31 - 1

func (c *decoder) optional(name string, limit uint64) int {
	if c.null() {
		return 0
	}
	return c.number(name, limit)
}

// loraID reads the number of an adapter, which counts where there is no name.
func (c *decoder) loraID(e *Event) {
	if c.null() {
		return
	}
	if id := c.integer("lora_id"); e.LoRA == "" {
		e.LoRA = fmt.Sprintf("#%d", int64(id))
	}
}

func (c *decoder) loraName(e *Event) {
	if name := c.text("lora_name"); name != "" {
		e.LoRA = name
	}
}

// hash reads a hash: an integer, or bytes of which the first 8 count.
func (c *decoder) hash(what string) uint64 {
	if c.peek() == kindInt {
		return c.integer(what)
	}
	b := c.raw(what)
	if c.err == nil && len(b) < 8 {
		c.fail(ErrSyntax, "%s of %d bytes; at least 8 are meant", what, len(b))
	}
	if c.err != nil {
		return 0
	}
	return ShortHash(b)
}

func (c *decoder) hashes() []uint64 {
	n := c.length(kindArray, "hashes")
	if n > c.limits.Hashes {
		c.fail(ErrTooManyHashes, "%d, at most %d", n, c.limits.Hashes)
		return nil
	}
	if !c.spend(n, 8) {
		return nil
	}
	all := make([]uint64, 0, n)
	for i := 0; i < n && c.err == nil; i++ {
		all = append(all, c.hash("a hash"))
	}
	return all
}

// tokens reads token ids, or pairs of neighbours, which overlap by one token.
func (c *decoder) tokens(e *Event) {
	if c.null() {
		return
	}
	n := c.length(kindArray, "tokens")
	if !c.spend(n+1, 4) {
		return
	}
	e.Tokens = make([]uint32, 0, n+1)
	for i := 0; i < n && c.err == nil; i++ {
		pair := c.peek() == kindArray
		switch {
		case i > 0 && pair != e.Pairs:
			c.fail(ErrSyntax, "pairs and single tokens in one event")
		case !pair:
			e.Tokens = append(e.Tokens, uint32(c.number("a token", 1<<32-1)))
		default:
			e.Pairs = true
			c.pair(e)
		}
	}
}

// pair reads a pair of tokens. Its first is the second of the pair before; a block of other
// pairs is not named by its tokens.
func (c *decoder) pair(e *Event) {
	if size := c.length(kindArray, "a pair of tokens"); c.err == nil && size != 2 {
		c.fail(ErrSyntax, "a token of %d values; one, or a pair", size)
	}
	first, second := uint32(c.number("a token", 1<<32-1)), uint32(c.number("a token", 1<<32-1))
	if n := len(e.Tokens); n == 0 {
		e.Tokens = append(e.Tokens, first)
	} else {
		e.Extra = e.Extra || e.Tokens[n-1] != first
	}
	e.Tokens = append(e.Tokens, second)
}

func (c *decoder) medium(e *Event) {
	m, known := media[strings.ToUpper(c.text("medium"))]
	e.Medium, c.elsewhere = m, !known
}

// extraKeys reads what else the hashes of blocks are made of. vLLM puts the name
// of a LoRA adapter there too, which the event says elsewhere: a key that is only
// that is none.
func (c *decoder) extraKeys(e *Event) {
	var only []string
	e.Extra = c.extra(&only) || e.Extra
	c.onlyNames = only
}

// extra reads a list with something or nil for each block, and reports whether
// there was something. A list of one text goes to only, if that is not nil, and
// does not count.
func (c *decoder) extra(only *[]string) bool {
	if c.null() {
		return false
	}
	some := false
	n := c.length(kindArray, "extra keys")
	for i := 0; i < n && c.err == nil; i++ {
		if c.null() {
			continue
		}
		if only == nil || c.peek() != kindArray {
			some = true
			c.skip(maxNesting)
			continue
		}
		size := c.length(kindArray, "extra keys of a block")
		if size == 1 && c.peek() == kindString && c.spend(1, textBytes) {
			*only = appendNew(*only, c.text("an extra key"))
			continue
		}
		some = some || size > 0
		for j := 0; j < size && c.err == nil; j++ {
			c.skip(maxNesting)
		}
	}
	return some
}

// appendNew appends a text that differs from the last one.
func appendNew(all []string, s string) []string {
	if n := len(all); n > 0 && all[n-1] == s {
		return all
	}
	return append(all, s)
}

func (c *decoder) components(e *Event) {
	if c.null() {
		return
	}
	n := c.length(kindArray, "components")
	if !c.spend(n, textBytes) {
		return
	}
	for i := 0; i < n && c.err == nil; i++ {
		e.Components = append(e.Components, c.text("a component"))
	}
}
