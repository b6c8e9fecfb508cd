package index_test

import (
	"fmt"

	"github.com/kvstored/kvstored/router/index"
)

// Two engines, of which the first has twice as much of a prompt.
func Example() {
	x, err := index.New(index.Options{Bytes: 256 << 20})
	if err != nil {
		panic(err)
	}
	shard, err := x.Open(index.Name{Model: "llama"}, index.Config{BlockTokens: 2, Hash: index.DynamoHash("", "")})
	if err != nil {
		panic(err)
	}
	prompt := []uint32{1, 2, 3, 4, 5, 6, 7, 8}
	for id, tokens := range []int{8, 4} {
		worker := index.Worker{ID: fmt.Sprint("engine ", id)}
		if err := x.Register(worker, index.WorkerOptions{}); err != nil {
			panic(err)
		}
		_, err := shard.Announce(index.At{Worker: worker}, index.Announcement{
			Hashes: []uint64{101, 102, 103, 104}[:tokens/2], Tokens: prompt[:tokens], BlockTokens: 2,
		})
		if err != nil {
			panic(err)
		}
	}
	matches, err := shard.FindTokens(nil, prompt, index.FindOptions{})
	if err != nil {
		panic(err)
	}
	for _, m := range matches {
		fmt.Printf("%s: %d tokens, %d of them on the GPU\n", m.Worker, m.Usable, m.Tokens(index.GPU))
	}
	// Output:
	// engine 0: 8 tokens, 8 of them on the GPU
	// engine 1: 4 tokens, 4 of them on the GPU
}
