package event_test

import (
	"bytes"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/router/event"
	"github.com/kvstored/kvstored/router/index"
)

// digest is a hash of 32 bytes; its first 8 are 0x0102030405060708.
var digest = append([]byte{1, 2, 3, 4, 5, 6, 7, 8}, bytes.Repeat([]byte{0xee}, 24)...)

const first8 = 0x0102030405060708

// form is an event in one of the forms that engines send.
type form struct {
	name    string
	dialect event.Dialect
	in      any
	want    event.Event
}

func stored(change func(*event.Event)) event.Event {
	e := event.Event{Hashes: []uint64{11, 12}, Parent: index.After(10), Tokens: []uint32{1, 2, 3, 4}, BlockTokens: 2}
	if change != nil {
		change(&e)
	}
	return e
}

var hashes, tokens = list{11, 12}, list{1, 2, 3, 4}

var forms = []form{
	{"vLLM array, oldest", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil}, stored(nil)},
	{"vLLM array, LoRA id", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, 5}, stored(func(e *event.Event) { e.LoRA = "#5" })},
	{"vLLM array, medium", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "CPU"}, stored(func(e *event.Event) { e.Medium = index.CPU })},
	{"vLLM array, LoRA name", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, 5, "GPU", "ada"}, stored(func(e *event.Event) { e.LoRA = "ada" })},
	{"vLLM array, nothing extra", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", nil, list{nil, nil}}, stored(nil)},
	{"vLLM array, extra keys", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", nil, list{nil, list{"image", 3}}}, stored(func(e *event.Event) { e.Extra = true })},
	{"vLLM array, group", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", nil, nil, 1, "sliding_window", 128}, stored(func(e *event.Event) {
		e.Group, e.GroupKind, e.Window = 1, "sliding_window", 128
	})},
	{"vLLM array, images and group", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", nil, nil, list{nil, pairs{"mm_hash", 9}}, 2, "full_attention"}, stored(func(e *event.Event) {
		e.Extra, e.Group, e.GroupKind = true, 2, "full_attention"
	})},
	{"vLLM array, locality", event.VLLM, list{"BlockStored", hashes, 10, tokens, 2, nil, "STORAGE", nil, nil, 0, "full_attention", nil, "LOCAL", "kvcr"}, stored(func(e *event.Event) {
		e.Medium, e.GroupKind, e.Locality = index.Disk, "full_attention", "LOCAL"
	})},
	{"vLLM map", event.VLLM, pairs{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", 10, "token_ids", tokens, "block_size", 2}, stored(nil)},
	{"vLLM map, all fields", event.VLLM, pairs{
		"block_hashes", hashes, "parent_block_hash", 10, "token_ids", tokens, "block_size", 2, "lora_id", 5, "medium", "CPU", "lora_name", "ada",
		"extra_keys", list{list{"salt"}, nil}, "group_idx", 3, "kv_cache_spec_kind", "mamba", "kv_cache_spec_sliding_window", 64,
		"locality", "REMOTE", "ownership", "kvcr", "something_new", pairs{"a", list{1.5, true, nil, []byte{1}}}, "type", "BlockStored",
	}, stored(func(e *event.Event) {
		e.LoRA, e.Medium, e.Extra, e.Group, e.GroupKind, e.Window, e.Locality = "ada", index.CPU, true, 3, "mamba", 64, "REMOTE"
	})},
	{"vLLM map, the adapter as an extra key", event.VLLM, pairs{
		"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", 10, "token_ids", tokens, "block_size", 2, "extra_keys", list{list{"ada"}, list{"ada"}}, "lora_name", "ada",
	}, stored(func(e *event.Event) { e.LoRA = "ada" })},
	{"vLLM map, another name as an extra key", event.VLLM, pairs{
		"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", 10, "token_ids", tokens, "block_size", 2, "lora_name", "ada", "extra_keys", list{list{"ada"}, list{"salt"}},
	}, stored(func(e *event.Event) { e.LoRA, e.Extra = "ada", true })},
	{"kvstored placeholder", event.VLLM, pairs{
		"type", "BlockStored", "block_hashes", list{digest[:16]}, "medium", "SHARED", "locality", "REMOTE", "space", "00ff", "parent_block_hash", nil, "token_ids", list{}, "block_size", 0, "tokens", 256,
	}, event.Event{Hashes: []uint64{first8}, Tokens: []uint32{}, Medium: index.Shared, Locality: "REMOTE", Space: "00ff", ChunkTokens: 256}},
	{"vLLM map, nils", event.VLLM, pairs{
		"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", nil, "token_ids", tokens, "block_size", 2, "lora_id", nil, "medium", nil, "lora_name", nil,
		"extra_keys", nil, "group_idx", nil, "kv_cache_spec_kind", nil, "kv_cache_spec_sliding_window", nil, "locality", nil,
	}, stored(func(e *event.Event) { e.Parent = index.Root })},
	{"hashes as bytes", event.VLLM, pairs{"type", "BlockStored", "block_hashes", list{digest}, "parent_block_hash", digest[:8], "token_ids", list{1, 2}, "block_size", 2}, event.Event{
		Hashes: []uint64{first8}, Parent: index.After(first8), Tokens: []uint32{1, 2}, BlockTokens: 2,
	}},
	{"hashes of 64 bits", event.SGLang, list{"BlockStored", list{-2, uint64(1<<63 + 5)}, -300, tokens, 2}, stored(func(e *event.Event) {
		e.Hashes, e.Parent = []uint64{1<<64 - 2, 1<<63 + 5}, index.After(1<<64-300)
	})},
	{"vLLM placeholder", event.VLLM, pairs{"type", "BlockStored", "block_hashes", hashes, "parent_block_hash", nil, "token_ids", list{}, "block_size", 0, "medium", "CPU", "group_idx", 1}, event.Event{
		Hashes: []uint64{11, 12}, Tokens: []uint32{}, Medium: index.CPU, Group: 1,
	}},
	{"vLLM removed, array", event.VLLM, list{"BlockRemoved", hashes}, event.Event{Kind: event.Removed, Hashes: []uint64{11, 12}}},
	{"vLLM removed, group and locality", event.VLLM, list{"BlockRemoved", hashes, "CPU", 1, "LOCAL"}, event.Event{
		Kind: event.Removed, Hashes: []uint64{11, 12}, Medium: index.CPU, Group: 1, Locality: "LOCAL",
	}},
	{"vLLM removed, map", event.VLLM, pairs{"type", "BlockRemoved", "block_hashes", hashes, "medium", "CPU", "group_idx", 1, "locality", "LOCAL"}, event.Event{
		Kind: event.Removed, Hashes: []uint64{11, 12}, Medium: index.CPU, Group: 1, Locality: "LOCAL",
	}},
	{"cleared, array", event.VLLM, list{"AllBlocksCleared"}, event.Event{Kind: event.Cleared}},
	{"cleared, map", event.VLLM, pairs{"type", "AllBlocksCleared"}, event.Event{Kind: event.Cleared}},
	{"SGLang", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU"}, stored(nil)},
	{"SGLang, no LoRA id, no medium", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2}, stored(nil)},
	{"SGLang, salt", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2, nil, "CPU_TIER1", "pepper"}, stored(func(e *event.Event) { e.Medium, e.Salt = index.CPU, "pepper" })},
	{"SGLang, session and LoRA", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2, nil, "CPU_TIER2", nil, "session 1", "ada"}, stored(func(e *event.Event) { e.Medium, e.LoRA = index.Disk, "ada" })},
	{"SGLang, components", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", list{"FULL", "SWA"}}, stored(func(e *event.Event) { e.Components = []string{"FULL", "SWA"} })},
	{"SGLang, salt and components", event.SGLang, list{"BlockStored", hashes, 10, tokens, 2, nil, "GPU", "pepper", nil, nil, list{"FULL"}}, stored(func(e *event.Event) {
		e.Salt, e.Components = "pepper", []string{"FULL"}
	})},
	{"SGLang, pairs of tokens", event.SGLang, list{"BlockStored", hashes, 10, list{list{1, 2}, list{2, 3}, list{3, 4}, list{4, 5}}, 2, nil, "GPU"}, stored(func(e *event.Event) { e.Pairs, e.Tokens = true, []uint32{1, 2, 3, 4, 5} })},
	{"SGLang, pairs that are no neighbours", event.SGLang, list{"BlockStored", list{11}, 10, list{list{1, 2}, list{3, 4}}, 2, nil, "GPU"}, event.Event{
		Hashes: []uint64{11}, Parent: index.After(10), Tokens: []uint32{1, 2, 4}, BlockTokens: 2, Pairs: true, Extra: true,
	}},
	{"SGLang, removed", event.SGLang, list{"BlockRemoved", hashes, "CPU_TIER1", list{"FULL"}}, event.Event{
		Kind: event.Removed, Hashes: []uint64{11, 12}, Medium: index.CPU, Components: []string{"FULL"},
	}},
}

func TestForms(t *testing.T) {
	for _, f := range forms {
		for _, outer := range []struct {
			name string
			in   any
			rank bool
		}{
			{"array", list{1700000000.5, list{f.in}, 3}, true},
			{"array without rank", list{1700000000.5, list{f.in}}, false},
			{"array with a tag", list{"KVEventBatch", 1700000000.5, list{f.in}, nil}, false},
			{"map", pairs{"ts", 1700000000.5, "events", list{f.in}, "data_parallel_rank", 3}, true},
			{"map with a tag", pairs{"type", "KVEventBatch", "events", list{f.in}, "ts", 1700000000.5, "dp_rank", nil, "more", 1}, false},
		} {
			want := event.Batch{Time: 1700000000.5, HasRank: outer.rank, Events: []event.Event{f.want}}
			if outer.rank {
				want.Rank = 3
			}
			got, err := event.Decode(pack(outer.in), f.dialect, event.Limits{})
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%s in %s:\n%+v, %v\nwant\n%+v", f.name, outer.name, got, err, want)
			}
		}
	}
}

func TestPlaceholder(t *testing.T) {
	for _, f := range forms {
		if got := f.want.Placeholder(); got != strings.HasSuffix(f.name, " placeholder") {
			t.Errorf("%s: %v", f.name, got)
		}
	}
}

// TestWrongBatches has the likeliest wrong inputs. Each is refused whole, with
// an error of its own.
func TestWrongBatches(t *testing.T) {
	good := list{"BlockRemoved", hashes}
	one := func(e any) []byte { return pack(list{1, list{good, e}}) }
	million := make(list, 1e6)
	for i := range million {
		million[i] = i
	}
	deep := any(1)
	for range 100 {
		deep = list{deep}
	}
	for _, c := range []struct {
		name string
		in   []byte
		want error
		says string
	}{
		{"nothing", nil, event.ErrSyntax, "nothing"},
		{"text", []byte("hello"), event.ErrSyntax, "not array"},
		{"cut", one(good)[:12], event.ErrSyntax, ""},
		{"more behind", append(one(good), 1), event.ErrSyntax, "1 bytes behind"},
		{"only a time", pack(list{1}), event.ErrSyntax, "1 values"},
		{"a map without events", pack(pairs{"ts", 1}), event.ErrSyntax, "without events"},
		{"too large", make([]byte, 1<<20), event.ErrTooLarge, "1048576 bytes"},
		{"too many events", pack(list{1, append(make(list, 0), list{"AllBlocksCleared"}, list{"AllBlocksCleared"}, list{"AllBlocksCleared"}, list{"AllBlocksCleared"})}), event.ErrTooManyEvents, "4, at most 3"},
		{"a million hashes", one(list{"BlockRemoved", million[:1500]}), event.ErrTooManyHashes, "1500, at most 1000"},
		{"an array that lies", append(pack(list{1})[:1], 0xdd, 0xff, 0xff, 0xff, 0xff), event.ErrSyntax, ""},
		{"events that lie", append([]byte{0x92, 1}, 0xdd, 0xff, 0xff, 0xff, 0xff), event.ErrSyntax, "4294967295 values"},
		{"a kind that is a number", one(list{7, hashes}), event.ErrSyntax, "integer"},
		{"an empty event", one(list{}), event.ErrNoKind, "empty"},
		{"a map without type", one(pairs{"block_hashes", hashes}), event.ErrNoKind, "without a type"},
		{"no hashes", one(list{"BlockRemoved"}), event.ErrSyntax, "without hashes"},
		{"block size 0", one(list{"BlockStored", hashes, nil, tokens, 0, nil}), event.ErrBlockTokens, "4 tokens in blocks of 0"},
		{"negative block size", one(list{"BlockStored", hashes, nil, tokens, -2, nil}), event.ErrSyntax, "block_size is -2"},
		{"too few tokens", one(list{"BlockStored", hashes, nil, list{1, 2, 3}, 2, nil}), event.ErrCount, "2 hashes, 3 tokens, 2 in a block"},
		{"a token that is text", one(list{"BlockStored", hashes, nil, list{"a", "b", "c", "d"}, 2, nil}), event.ErrSyntax, "a token is string"},
		{"a token of three", one(list{"BlockStored", list{1}, nil, list{list{1, 2, 3}}, 1, nil}), event.ErrSyntax, "3 values"},
		{"pairs and single tokens", one(list{"BlockStored", list{1}, nil, list{list{1, 2}, 2}, 2, nil}), event.ErrSyntax, "pairs and single tokens"},
		{"too few pairs", one(list{"BlockStored", hashes, nil, list{list{1, 2}, list{2, 3}, list{3, 4}}, 2, nil}), event.ErrCount, "2 hashes, 4 tokens, 2 in a block"},
		{"a token of 40 bits", one(list{"BlockStored", list{1}, nil, list{1 << 40}, 1, nil}), event.ErrSyntax, "a token is"},
		{"a short hash", one(list{"BlockRemoved", list{[]byte{1, 2, 3}}}), event.ErrSyntax, "3 bytes"},
		{"nested too deep", one(pairs{"type", "AllBlocksCleared", "x", deep}), event.ErrSyntax, "deep"},
		{"a byte that means nothing", one(pairs{"type", "AllBlocksCleared", "x", 1})[:1], event.ErrSyntax, ""},
	} {
		b, err := event.Decode(c.in, event.VLLM, event.Limits{Bytes: 1 << 19, Events: 3, Hashes: 1000})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || !reflect.DeepEqual(b, event.Batch{}) {
			t.Errorf("%s: %v, %v; want %v, and %q in it", c.name, b, err, c.want, c.says)
		}
	}
	if _, err := event.Decode(pack(list{1, list{}}), 9, event.Limits{}); !errors.Is(err, event.ErrDialect) {
		t.Errorf("dialect 9: %v", err)
	}
}

// Kinds of events that came later are counted and passed over.
func TestUnknownKinds(t *testing.T) {
	in := list{1, list{
		list{"BlockMoved", 5, list{1, "x"}, nil}, list{"AllBlocksCleared"},
		pairs{"type", "BlockMoved", "block_hashes", "all", "medium", "TAPE"}, list{"BlockRemoved", hashes},
	}}
	b, err := event.Decode(pack(in), event.VLLM, event.Limits{})
	if err != nil || b.Unknown != 2 || len(b.Events) != 2 || b.Events[0].Kind != event.Cleared || b.Events[1].Kind != event.Removed {
		t.Errorf("%+v, %v", b, err)
	}
}

// Events of media that came later are counted and passed over, and no others with them. Case
// does not matter.
func TestMedia(t *testing.T) {
	in := list{1, list{
		list{"BlockRemoved", hashes, "TAPE"}, list{"BlockRemoved", hashes, "cpu"},
		pairs{"medium", "Tape", "type", "BlockStored", "block_hashes", hashes, "token_ids", list{1}, "block_size", 4},
		list{"BlockStored", hashes, 10, tokens, 2, nil, "Storage"}, list{"BlockRemoved", hashes},
	}}
	b, err := event.Decode(pack(in), event.VLLM, event.Limits{})
	if err != nil || b.Unknown != 2 || len(b.Events) != 3 {
		t.Fatalf("%+v, %v", b, err)
	}
	for i, want := range []index.Medium{index.CPU, index.Disk, index.GPU} {
		if got := b.Events[i].Medium; got != want {
			t.Errorf("event %d is of %v, want %v", i, got, want)
		}
	}
}

// Small values that many bytes make are not decoded to many times as many.
func TestDecodedSize(t *testing.T) {
	array := func(value byte, n int) []byte {
		return append([]byte{0xdd, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, bytes.Repeat([]byte{value}, n)...)
	}
	const n = 4 << 20
	for name, field := range map[string][]byte{
		"tokens": append(pack("token_ids"), array(1, n)...), "components": append(pack("component_types"), array(0xa0, n)...),
	} {
		in := append(append(pack(list{1, 1})[:2], 0x91, 0x82), append(append(pack("type"), pack("BlockStored")...), field...)...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := event.Decode(in, event.SGLang, event.Limits{})
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, event.ErrTooLarge) || took > 3*n {
			t.Errorf("%d bytes of %s took %d, %v", n, name, took, err)
		}
	}
	if _, err := event.Decode(pack(list{1, list{list{"BlockStored", list{1}, nil, make(list, 0), 0, nil}}}), event.VLLM, event.Limits{}); err != nil {
		t.Error(err)
	}
}

// All integers, floats and extensions that msgpack has.
func TestValues(t *testing.T) {
	unknown := []byte{0x87} // a map of seven
	for _, v := range [][]byte{
		pack("type"), pack("AllBlocksCleared"),
		pack("a"), {0xca, 0x3f, 0x80, 0, 0}, pack("b"), {0xd6, 1, 1, 2, 3, 4}, pack("c"), {0xc7, 2, 5, 1, 2},
		pack("d"), {0xc8, 0, 1, 5, 9}, pack("e"), {0xc9, 0, 0, 0, 1, 5, 9}, pack(strings.Repeat("f", 300)), pack(bytes.Repeat([]byte{1}, 70000)),
	} {
		unknown = append(unknown, v...)
	}
	in := append(append(pack(list{1, 2})[:2], 0x91), unknown...)
	if b, err := event.Decode(in, event.VLLM, event.Limits{}); err != nil || len(b.Events) != 1 || b.Time != 1 {
		t.Errorf("%+v, %v", b, err)
	}
	numbers := list{0, 127, 128, 255, 256, 65535, 65536, 1<<32 - 1, 1 << 32, -1, -32, -33, -128, -129, -32768, -32769, -1 << 31, -1<<31 - 1, uint64(1<<64 - 1)}
	b, err := event.Decode(pack(list{0.5, list{list{"BlockRemoved", numbers}}}), event.VLLM, event.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range numbers {
		want, is := n.(uint64)
		if !is {
			want = uint64(int64(n.(int)))
		}
		if b.Events[0].Hashes[i] != want {
			t.Errorf("%v is read as %d", n, b.Events[0].Hashes[i])
		}
	}
}

// FuzzDecode: any bytes are refused with one of the errors, or make a batch that
// keeps the limits, in both dialects.
func FuzzDecode(f *testing.F) {
	for _, form := range forms {
		f.Add(pack(list{1.5, list{form.in}, 0}), uint8(form.dialect))
		f.Add(pack(pairs{"ts", 1, "events", list{form.in, form.in}}), uint8(form.dialect))
	}
	f.Fuzz(func(t *testing.T, in []byte, dialect uint8) {
		limits := event.Limits{Bytes: 1 << 16, Events: 10, Hashes: 20}
		b, err := event.Decode(in, event.Dialect(dialect%2), limits)
		if err != nil {
			for _, known := range []error{
				event.ErrSyntax, event.ErrTooLarge, event.ErrTooManyEvents, event.ErrTooManyHashes, event.ErrNoKind,
				event.ErrBlockTokens, event.ErrCount,
			} {
				if errors.Is(err, known) {
					return
				}
			}
			t.Fatalf("an error of no kind: %v", err)
		}
		if len(b.Events) > limits.Events {
			t.Fatalf("%d events", len(b.Events))
		}
		for _, e := range b.Events {
			tokens := len(e.Hashes) * e.BlockTokens
			if e.Pairs {
				tokens++
			}
			fits := len(e.Tokens) == tokens || e.Kind != event.Stored || e.Placeholder()
			if len(e.Hashes) > limits.Hashes || len(e.Tokens) > len(in) || !fits || e.Medium >= index.Media {
				t.Fatalf("%+v", e)
			}
		}
	})
}
