package index_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kvstored/kvstored/router/index"
)

var (
	modelM = index.Name{Model: "m"}
	w0     = index.Worker{ID: "w0"}
	gpu    = index.At{Worker: w0}
	hashes = []uint64{11, 12, 13}
)

func newIndex(t *testing.T) (*index.Index, *index.Shard) {
	t.Helper()
	x, err := index.New(index.Options{MaxEvent: 1000, MaxShards: 2, MaxWorkers: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := x.Open(modelM, index.Config{BlockTokens: 4, Hash: index.DynamoHash("", "")})
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Register(w0, index.WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	return x, s
}

func second(_ int, err error) error { return err }

// TestWrongInputs has the likeliest wrong inputs of each call. Each has an error
// of its own, and changes nothing.
func TestWrongInputs(t *testing.T) {
	x, s := newIndex(t)
	opaque, err := x.Open(index.Name{Model: "o", Tenant: "a"}, index.Config{BlockTokens: 4})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Store(gpu, index.Root, hashes); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Announce(gpu, index.Announcement{Hashes: []uint64{1, 2}, Tokens: make([]uint32, 8), BlockTokens: 4}); err != nil {
		t.Fatal(err)
	}
	stranger := index.At{Worker: index.Worker{ID: "x"}}
	million := make([]uint64, 1e6)
	group := func(g int) index.At { return index.At{Worker: w0, Group: g} }
	medium := func(m index.Medium) index.At { return index.At{Worker: w0, Medium: m} }
	announce := func(at index.At, a index.Announcement) error { return second(s.Announce(at, a)) }
	before := x.Stats()
	for _, c := range []struct {
		name string
		got  error
		want error
		says string // part of the text
	}{
		{"new, too small a budget", isNew(index.Options{Bytes: 1}), index.ErrOption, "at least 65536"},
		{"new, negative budget", isNew(index.Options{Bytes: -1}), index.ErrOption, "Bytes = -1"},
		{"new, negative event", isNew(index.Options{MaxEvent: -1}), index.ErrOption, "MaxEvent = -1"},
		{"new, too many shards", isNew(index.Options{MaxShards: 1 << 30}), index.ErrOption, "MaxShards"},
		{"new, too many workers", isNew(index.Options{MaxWorkers: 1 << 30}), index.ErrOption, "MaxWorkers"},

		{"open, block of 0", isOpen(x, "n", index.Config{}), index.ErrBlockTokens, "0 tokens"},
		{"open, block of -16", isOpen(x, "n", index.Config{BlockTokens: -16}), index.ErrBlockTokens, "-16 tokens"},
		{"open twice", isOpen(x, "m", index.Config{BlockTokens: 4}), index.ErrShardExists, `"m"`},
		{"open, unknown kind", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: []index.Group{{}, {Kind: 9}}}), index.ErrGroup, "group 1: kind 9"},
		{"open, window of 0", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: []index.Group{{}, {Kind: index.Window}}}), index.ErrGroup, "window of 0 tokens"},
		{"open, local of -4", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: []index.Group{{}, {Kind: index.Local, Tokens: -4}}}), index.ErrGroup, "local of -4 tokens"},
		{"open, state of 4", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: []index.Group{{}, {Kind: index.State, Tokens: 4}}}), index.ErrGroup, "state of 4 tokens"},
		{"open, no full group", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: []index.Group{{Kind: index.State}}}), index.ErrGroup, "none of 1 groups is full"},
		{"open, 9 groups", isOpen(x, "n", index.Config{BlockTokens: 4, Groups: make([]index.Group, 9)}), index.ErrGroup, "9 groups"},
		{"open, a third", isOpen(x, "n", index.Config{BlockTokens: 4}), index.ErrTooManyShards, "there are 2"},
		{"open, long name", isOpen(x, strings.Repeat("n", 2000), index.Config{BlockTokens: 4}), index.ErrOption, "2000 bytes"},

		{"shard, unknown model", isShard(x, index.Name{Model: "n"}), index.ErrUnknownModel, `"n"`},
		{"shard, no model", isShard(x, index.Name{}), index.ErrUnknownModel, `""`},
		{"shard, unknown tenant", isShard(x, index.Name{Model: "m", Tenant: "t"}), index.ErrUnknownShard, `tenant "t"`},
		{"shard, unknown salt", isShard(x, index.Name{Model: "m", Salt: "s"}), index.ErrUnknownShard, `salt "s"`},
		{"shard, unknown LoRA", isShard(x, index.Name{Model: "m", LoRA: "l"}), index.ErrUnknownShard, `LoRA "l"`},
		{"drop, unknown", x.Drop(index.Name{Model: "n"}), index.ErrUnknownModel, "drop"},

		{"register twice", x.Register(w0, index.WorkerOptions{}), index.ErrWorkerExists, "w0"},
		{"register without id", x.Register(index.Worker{}, index.WorkerOptions{}), index.ErrWorkerName, "0 bytes"},
		{"register a long id", x.Register(index.Worker{ID: strings.Repeat("w", 2000)}, index.WorkerOptions{}), index.ErrWorkerName, "2000 bytes"},
		{"register, negative time to live", x.Register(index.Worker{ID: "y"}, index.WorkerOptions{TTL: -1}), index.ErrOption, "time to live"},
		{"register, a millisecond to live", x.Register(index.Worker{ID: "y"}, index.WorkerOptions{TTL: time.Millisecond}), index.ErrOption, "1ms"},
		{"unregister a stranger", x.Unregister(stranger.Worker), index.ErrUnknownWorker, "worker x"},
		{"unregister another rank", x.Unregister(index.Worker{ID: "w0", Rank: 1}), index.ErrUnknownWorker, "w0/1"},

		{"store, stranger", second(s.Store(stranger, index.Root, hashes)), index.ErrUnknownWorker, "worker x"},
		{"store, unknown parent", second(s.Store(gpu, index.After(99), hashes)), index.ErrUnknownParent, "0x63"},
		{"store, other parent", second(s.Store(gpu, index.Root, []uint64{12})), index.ErrParent, "block 1 of 1"},
		{"store, a block twice", second(s.Store(gpu, index.Root, []uint64{11, 12, 11})), index.ErrParent, "block 3 of 3"},
		{"store, a million", second(s.Store(gpu, index.Root, million)), index.ErrTooManyBlocks, "at most 1000"},
		{"store, group 1 of 1", second(s.Store(group(1), index.Root, hashes)), index.ErrGroup, "group 1"},
		{"store, group -1", second(s.Store(group(-1), index.Root, hashes)), index.ErrGroup, "group -1"},
		{"store, unknown medium", second(s.Store(medium(7), index.Root, hashes)), index.ErrMedium, "7"},

		{"remove, stranger", second(s.Remove(stranger, hashes)), index.ErrUnknownWorker, "worker x"},
		{"remove, a million", second(s.Remove(gpu, million)), index.ErrTooManyBlocks, "1000000 blocks"},
		{"remove, group 7", second(s.Remove(group(7), hashes)), index.ErrGroup, "group 7"},
		{"remove, unknown medium", second(s.Remove(medium(4), hashes)), index.ErrMedium, "4"},

		{"clear, stranger", s.Clear(stranger.Worker), index.ErrUnknownWorker, "worker x"},
		{"clear, unknown medium", s.Clear(w0, 200), index.ErrMedium, "200"},
		{"clear all, stranger", x.Clear(stranger.Worker), index.ErrUnknownWorker, "worker x"},
		{"clear all, unknown medium", x.Clear(w0, index.GPU, 5), index.ErrMedium, "5"},

		{"announce, block of 0", announce(gpu, index.Announcement{Hashes: hashes}), index.ErrBlockTokens, "0 tokens"},
		{"announce, other block size", announce(gpu, index.Announcement{Hashes: hashes, BlockTokens: 16, Tokens: make([]uint32, 48)}), index.ErrBlockTokens, "the shard has 4"},
		{"announce, too few tokens", announce(gpu, index.Announcement{Hashes: hashes, BlockTokens: 4, Tokens: make([]uint32, 11)}), index.ErrCount, "3 hashes, 11 tokens"},
		{"announce, a million", announce(gpu, index.Announcement{Hashes: million, BlockTokens: 4, Tokens: make([]uint32, 4)}), index.ErrTooManyBlocks, "1000000"},
		{"announce, unknown parent", announce(gpu, index.Announcement{Parent: index.After(5), Hashes: []uint64{7}, BlockTokens: 4, Tokens: make([]uint32, 4)}), index.ErrUnknownParent, "0x5"},
		{"announce, a name of another block", announce(gpu, index.Announcement{Hashes: []uint64{2}, BlockTokens: 4, Tokens: []uint32{9, 9, 9, 9}}), index.ErrAlias, "0x2"},
		{"announce, stranger", announce(stranger, index.Announcement{BlockTokens: 4}), index.ErrUnknownWorker, "worker x"},
		{"announce, no hash", second(opaque.Announce(gpu, index.Announcement{BlockTokens: 4})), index.ErrNoHash, `tenant "a"`},
		{"add, stranger", second(s.Add(stranger, hashes)), index.ErrUnknownWorker, "worker x"},
		{"add, a million", second(s.Add(gpu, million)), index.ErrTooManyBlocks, "add"},
		{"add, unknown medium", second(s.Add(medium(9), hashes)), index.ErrMedium, "9"},
		{"withdraw, stranger", second(s.Withdraw(stranger, hashes)), index.ErrUnknownWorker, "withdraw"},
		{"withdraw, a million", second(s.Withdraw(gpu, million)), index.ErrTooManyBlocks, "withdraw"},
		{"withdraw, group 3", second(s.Withdraw(group(3), hashes)), index.ErrGroup, "group 3"},

		{"find tokens, no hash", func() error { _, err := opaque.FindTokens(nil, nil, index.FindOptions{}); return err }(), index.ErrNoHash, "find"},
		{"hash, block of 0", func() error {
			_, err := index.DynamoHash("", "").Append(nil, index.Root, nil, 0)
			return err
		}(), index.ErrBlockTokens, "0 tokens"},
		{"hash, none", func() error { _, err := index.Hash{}.Append(nil, index.Root, nil, 4); return err }(), index.ErrNoHash, "0 tokens"},
	} {
		if !errors.Is(c.got, c.want) || !strings.Contains(c.got.Error(), c.says) {
			t.Errorf("%s: %v; want %v, and %q in it", c.name, c.got, c.want, c.says)
		}
	}
	if after := x.Stats(); after != before {
		t.Errorf("wrong inputs changed %+v to %+v", before, after)
	}
}

func isNew(o index.Options) error { _, err := index.New(o); return err }
func isOpen(x *index.Index, model string, c index.Config) error {
	_, err := x.Open(index.Name{Model: model}, c)
	return err
}
func isShard(x *index.Index, n index.Name) error { _, err := x.Shard(n); return err }

// An unknown block, or one said twice, is no error where it does no harm.
func TestHarmless(t *testing.T) {
	_, s := newIndex(t)
	for range 2 {
		if n, err := s.Store(gpu, index.Root, hashes); n != 3 || err != nil {
			t.Fatal(n, err)
		}
	}
	if n, err := s.Remove(gpu, []uint64{13, 13, 99}); n != 2 || err != nil {
		t.Errorf("%d of 3 unknown, %v; want 2", n, err)
	}
	if n, err := s.Withdraw(gpu, []uint64{11}); n != 1 || err != nil {
		t.Errorf("a sequence hash as an engine's: %d unknown, %v", n, err)
	}
	if n, err := s.Store(gpu, index.Root, nil); n != 0 || err != nil {
		t.Error(n, err)
	}
	if m := s.Find(nil, nil, index.FindOptions{}); m != nil {
		t.Errorf("an empty prompt has %v", m)
	}
	m, err := s.FindTokens(nil, []uint32{1, 2, 3}, index.FindOptions{})
	if m != nil || err != nil {
		t.Errorf("less than a block: %v, %v", m, err)
	}
}

// A store that fails in its middle has stored what is before, which is true.
func TestStoreStopsAtTheBlock(t *testing.T) {
	_, s := newIndex(t)
	if _, err := s.Store(gpu, index.Root, []uint64{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	n, err := s.Store(gpu, index.Root, []uint64{5, 6, 2, 7})
	if n != 2 || !errors.Is(err, index.ErrParent) {
		t.Fatal(n, err)
	}
	if m := s.Find(nil, []uint64{5, 6, 7}, index.FindOptions{}); len(m) != 1 || m[0].Blocks[index.GPU] != 2 {
		t.Errorf("%+v", m)
	}
	if m := s.Find(nil, []uint64{1, 2, 3}, index.FindOptions{}); len(m) != 1 || m[0].Usable != 12 {
		t.Errorf("%+v", m)
	}
}

func TestHoleAndMedia(t *testing.T) {
	_, s := newIndex(t)
	chain := []uint64{1, 2, 3, 4, 5}
	must(t)(s.Store(gpu, index.Root, chain))
	must(t)(s.Store(index.At{Worker: w0, Medium: index.Disk}, index.Root, chain[:4]))
	expect := func(gpu, cpu, disk, shared int32) {
		t.Helper()
		m := s.Find(nil, chain, index.FindOptions{})
		want := [index.Media]int32{gpu, cpu, disk, shared}
		if shared == 0 && len(m) == 0 {
			return
		}
		if len(m) != 1 || m[0].Blocks != want || m[0].Tokens(index.GPU) != int(4*gpu) || m[0].Usable != int(4*shared) {
			t.Errorf("%+v, want %v", m, want)
		}
	}
	expect(5, 5, 5, 5)
	must(t)(s.Remove(gpu, []uint64{2})) // a hole that the disk fills
	expect(1, 1, 5, 5)
	must(t)(s.Remove(index.At{Worker: w0, Medium: index.Disk}, []uint64{2}))
	expect(1, 1, 1, 1)
	must(t)(s.Store(index.At{Worker: w0, Medium: index.CPU}, index.After(1), []uint64{2}))
	expect(1, 5, 5, 5)
	must(t)(s.Store(gpu, index.After(1), []uint64{2})) // it heals
	expect(5, 5, 5, 5)
	if err := s.Clear(w0, index.GPU); err != nil {
		t.Fatal(err)
	}
	expect(0, 0, 4, 4)
}

func must(t *testing.T) func(int, error) {
	return func(_ int, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestDropped(t *testing.T) {
	x, s := newIndex(t)
	must(t)(s.Store(gpu, index.Root, hashes))
	if err := x.Drop(modelM); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Store(gpu, index.Root, hashes); !errors.Is(err, index.ErrDropped) {
		t.Error(err)
	}
	if m := s.Find(nil, hashes, index.FindOptions{}); len(m) > 0 {
		t.Errorf("a dropped shard has %v", m)
	}
	if n := x.Stats().Bytes; n != 0 {
		t.Errorf("%d bytes are left", n)
	}
	if _, err := x.Open(modelM, index.Config{BlockTokens: 4}); err != nil {
		t.Error(err)
	}
}

// Names of one worker's engine mean nothing for another with a scheme of its own.
func TestSchemes(t *testing.T) {
	x, s := newIndex(t)
	w1 := index.Worker{ID: "w1"}
	if err := x.Register(w1, index.WorkerOptions{}); err != nil {
		t.Fatal(err)
	}
	a := func(first uint32) index.Announcement {
		return index.Announcement{Hashes: []uint64{77}, Tokens: []uint32{first, 2, 3, 4}, BlockTokens: 4}
	}
	must(t)(s.Announce(gpu, a(1)))
	must(t)(s.Announce(index.At{Worker: w1}, a(5))) // the same name for another block
	if n, err := s.Withdraw(gpu, []uint64{77}); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	for first, want := range map[uint32][]index.Worker{1: nil, 5: {w1}} {
		m, err := s.FindTokens(nil, a(first).Tokens, index.FindOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var got []index.Worker
		for _, one := range m {
			got = append(got, one.Worker)
		}
		if !slices.Equal(got, want) {
			t.Errorf("block of %d: %v, want %v", first, got, want)
		}
	}
}
