package dynamo_test

import (
	"encoding/binary"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/e2e/engines/drive"
	"github.com/kvstored/kvstored/router/index"
)

var streams = flag.Int("streams", 40, "streams of 200 events and questions")

var runtime = drive.New("dynamo")

type object = drive.Object

func start(t *testing.T) *drive.Process {
	t.Helper()
	runtime.Python(t)
	return runtime.Start(t, runtime.Environment(""), object{})
}

// The hashes of blocks are Dynamo's, bit by bit, and so are those with the token behind a
// block, for engines that speculate as EAGLE does.
func TestHashes(t *testing.T) {
	p := start(t)
	r := rand.New(rand.NewPCG(1, 1))
	compared := 0
	for _, size := range []int{16, 32, 64} {
		for _, lora := range []string{"", "adapter-a", "sql/lora:7"} {
			for _, salt := range []string{"", "tenant-1"} {
				for eagle, hash := range map[bool]index.Hash{false: index.DynamoHash(lora, salt), true: index.DynamoHashEagle(lora, salt)} {
					for range 10 {
						tokens := random(r, size+r.IntN(8*size))
						var want []uint64
						p.Ask(object{"do": "hashes", "tokens": tokens, "size": size, "lora": lora, "salt": salt, "eagle": eagle}, &want)
						if len(want) != hash.Blocks(len(tokens), size) {
							t.Fatalf("%d tokens, lora %q, salt %q, eagle %t: Dynamo has %d hashes of blocks of %d", len(tokens), lora, salt, eagle, len(want), size)
						}
						for i := range want {
							got, err := hash.Append(nil, index.Root, tokens[i*size:(i+1)*size+hash.Ahead()], size)
							if err != nil || len(got) != 1 || got[0] != want[i] {
								t.Fatalf("block %d of %d tokens, lora %q, salt %q, eagle %t: %x, %v; Dynamo says %x", i, size, lora, salt, eagle, got, err, want[i])
							}
							compared++
						}
					}
				}
			}
		}
	}
	t.Log(compared, "hashes compared")
}

func random(r *rand.Rand, n int) []uint32 {
	tokens := make([]uint32, n)
	for i := range tokens {
		if tokens[i] = uint32(r.IntN(152_000)); r.IntN(5) == 0 {
			tokens[i] = r.Uint32()
		}
	}
	return tokens
}

// The router has no hash for blocks with images, which engines tell of in other ways. Dynamo's
// is that of the tokens with the images' hashes behind them, sorted. A test fails when it
// becomes another, and has the form for the router, should it take such blocks.
func TestHashesWithImages(t *testing.T) {
	const size, seed = 16, 1337
	p := start(t)
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		tokens, images, text := random(r, size), []uint64{}, []byte(nil)
		for range r.IntN(4) {
			images = append(images, r.Uint64())
		}
		for _, x := range tokens {
			text = binary.LittleEndian.AppendUint32(text, x)
		}
		for _, x := range slices.Sorted(slices.Values(images)) {
			text = binary.LittleEndian.AppendUint64(text, x)
		}
		var got []uint64
		p.Ask(object{"do": "hashes", "tokens": tokens, "size": size, "lora": "", "salt": "", "images": [][]uint64{images}}, &got)
		if want := xxh3.HashSeed(text, seed); len(got) != 1 || got[0] != want {
			t.Fatalf("%d images: Dynamo says %x, want %x", len(images), got, want)
		}
	}
}

// stream is one history of workers: what Dynamo's tree and the router's index are told, and a
// set for each worker.
type stream struct {
	t       *testing.T
	p       *drive.Process
	r       *rand.Rand
	space   *index.Shard
	vocab   []uint64
	hashes  map[string]uint64 // of paths
	held    []map[string][]uint64
	refused map[string]int // by event: what Dynamo did not take
	asked   int
	differ  int // from Dynamo
}

func text(path []uint64) string { return fmt.Sprint(path) }

func (s *stream) hash(path []uint64) uint64 {
	if len(path) == 0 {
		return 0
	}
	k := text(path)
	if s.hashes[k] == 0 {
		s.hashes[k] = 1 + s.r.Uint64N(1<<63-1)
	}
	return s.hashes[k]
}

func (s *stream) at(worker int) index.At {
	return index.At{Worker: index.Worker{ID: strconv.Itoa(worker)}, Medium: index.GPU}
}

func (s *stream) event(worker int, kind string, data any) {
	var taken bool
	if s.p.Ask(object{"do": "event", "worker": worker, "data": data}, &taken); !taken {
		s.refused[kind]++
	}
}

// some is a path that a worker has, or none.
func (s *stream) some(worker int) []uint64 {
	all := slices.Sorted(maps.Keys(s.held[worker]))
	if n := s.r.IntN(len(all) + 1); n < len(all) {
		return s.held[worker][all[n]]
	}
	return nil
}

func (s *stream) store(worker int) {
	base := s.some(worker)
	var parent any
	after := index.Root
	if len(base) > 0 {
		parent, after = s.hash(base), index.After(s.hash(base))
	}
	var blocks []object
	var hashes []uint64
	for range 1 + s.r.IntN(4) {
		base = append(slices.Clone(base), s.vocab[s.r.IntN(len(s.vocab))])
		blocks = append(blocks, object{"block_hash": s.hash(base), "tokens_hash": base[len(base)-1]})
		hashes = append(hashes, s.hash(base))
		s.held[worker][text(base)] = base
	}
	s.event(worker, "store", object{"stored": object{"parent_hash": parent, "blocks": blocks}})
	if _, err := s.space.Store(s.at(worker), after, hashes); err != nil {
		s.t.Fatal(err)
	}
}

// remove removes blocks of a worker; those that others of it stand on only where any may go.
func (s *stream) remove(worker int, any bool) {
	for range 1 + s.r.IntN(3) {
		path := s.some(worker)
		if len(path) == 0 || !any && s.carries(worker, path) {
			continue
		}
		delete(s.held[worker], text(path))
		s.event(worker, "remove", object{"removed": object{"block_hashes": []uint64{s.hash(path)}}})
		if _, err := s.space.Remove(s.at(worker), []uint64{s.hash(path)}); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stream) carries(worker int, path []uint64) bool {
	for _, other := range s.held[worker] {
		if len(other) > len(path) && slices.Equal(other[:len(path)], path) {
			return true
		}
	}
	return false
}

func (s *stream) clear(worker int) {
	clear(s.held[worker])
	s.event(worker, "clear", "cleared")
	if err := s.space.Clear(s.at(worker).Worker); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stream) find() {
	var path, hashes []uint64
	for range 1 + s.r.IntN(8) {
		path = append(path, s.vocab[s.r.IntN(len(s.vocab))])
		hashes = append(hashes, s.hash(path))
	}
	dynamo, ours, sets := map[string]int{}, map[string]int{}, map[string]int{}
	s.p.Ask(object{"do": "find", "local": path}, &dynamo)
	for _, m := range s.space.Find(nil, hashes, index.FindOptions{}) {
		ours[m.Worker.ID] = int(m.Blocks[index.GPU])
	}
	for w := range s.held {
		n := 0
		for n < len(path) && s.held[w][text(path[:n+1])] != nil {
			n++
		}
		if n > 0 {
			sets[strconv.Itoa(w)] = n
		}
	}
	if !maps.Equal(ours, sets) {
		s.t.Errorf("%x: the index has %v, the workers %v", path, ours, sets)
	}
	if s.asked++; !maps.Equal(ours, dynamo) {
		s.differ++
	}
}

// play plays streams, and returns how many questions there were, and to how many of them
// Dynamo has another answer.
func play(t *testing.T, any bool) (asked, differ int, refused map[string]int) {
	p, refused := start(t), map[string]int{}
	for seed := range uint64(*streams) {
		x, err := index.New(index.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := &stream{t: t, p: p, r: rand.New(rand.NewPCG(seed, 2)), hashes: map[string]uint64{}, refused: refused}
		if s.space, err = x.Open(index.Name{Model: "m"}, index.Config{BlockTokens: 16, Hash: index.DynamoHash("", "")}); err != nil {
			t.Fatal(err)
		}
		p.Ask(object{"do": "begin"}, nil)
		for range 4 {
			s.vocab = append(s.vocab, 1+s.r.Uint64N(1<<63))
		}
		for w := range 1 + s.r.IntN(5) {
			s.held = append(s.held, map[string][]uint64{})
			if err := x.Register(index.Worker{ID: strconv.Itoa(w)}, index.WorkerOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			switch w, k := s.r.IntN(len(s.held)), s.r.IntN(100); {
			case k < 45:
				s.store(w)
			case k < 60:
				s.remove(w, any)
			case k < 62:
				s.clear(w)
			default:
				s.find()
			}
		}
		asked, differ = asked+s.asked, differ+s.differ
	}
	return asked, differ, refused
}

// Where ends go first, as engines evict, each worker has what Dynamo says.
func TestScores(t *testing.T) {
	asked, differ, refused := play(t, false)
	if t.Logf("%d questions", asked); differ > 0 || len(refused) > 0 {
		t.Errorf("Dynamo has other answers to %d of %d questions, and has refused %v", differ, asked, refused)
	}
}

// Where a block goes before those that stand on it, Dynamo forgets these, and refuses what is
// said of them afterwards; docs/routing of the router says so. The index keeps them.
func TestScoresWithoutParents(t *testing.T) {
	asked, differ, refused := play(t, true)
	t.Logf("Dynamo has other answers to %d of %d questions, and has refused %v", differ, asked, refused)
	if refused["remove"]+refused["store"] == 0 {
		t.Error("Dynamo has refused nothing: it keeps such blocks too, and the documents say otherwise")
	}
}
