package main

import (
	"fmt"
	"runtime"

	"github.com/kvstored/kvstored/router/index"
)

// overTime shows the index's memory while events go on, and then what aliases
// add.
func overTime(c config, trace [][]uint64) error {
	o := newOurs().(*ours)
	all := newCluster(trace, c.split)
	before := heap()
	fmt.Printf("%16s%12s%12s%16s\n", "blocks of events", "blocks held", "heap, MiB", "of it ours, MiB")
	done := 0
	for million := 1; million <= c.flat; {
		e := all.request()
		o.apply(e)
		if done += e.blocks(); done >= million*1e6 {
			s := o.shard.Stats()
			fmt.Printf("%16d%12d%12.1f%16.1f\n", done, s.Blocks, float64(heap()-before)/(1<<20), float64(s.Memory)/(1<<20))
			million++
		}
	}
	return aliases(all)
}

// aliasTokens is the length of blocks that are announced with tokens.
const aliasTokens = 4

// aliases builds an index of the last state of all workers twice, with and
// without the engines' names.
func aliases(all *cluster) error {
	var sizes [2]int64
	blocks := 0
	for i := range sizes {
		before := heap()
		x, err := index.New(index.Options{Bytes: 8 << 30})
		if err != nil {
			return err
		}
		if err := x.Register(index.Worker{ID: "w"}, index.WorkerOptions{}); err != nil {
			return err
		}
		s, err := x.Open(index.Name{Model: "m"}, index.Config{BlockTokens: aliasTokens, Hash: index.DynamoHash("", "")})
		if err != nil {
			return err
		}
		at := index.At{Worker: index.Worker{ID: "w"}}
		for n := range all.trace {
			a := index.Announcement{BlockTokens: aliasTokens}
			for _, id := range all.trace[n] {
				a.Hashes = append(a.Hashes, mix(id))
				a.Tokens = append(a.Tokens, uint32(id), 1, 2, 3)
			}
			if i == 1 {
				_, err = s.Announce(at, a)
			} else {
				hashes, _ := s.Config().Hash.Append(nil, index.Root, a.Tokens, aliasTokens)
				_, err = s.Store(at, index.Root, hashes)
			}
			if err != nil {
				return err
			}
		}
		blocks = s.Stats().Blocks
		sizes[i] = heap() - before
		runtime.KeepAlive(x)
	}
	fmt.Printf("%d blocks of one worker: %.1f bytes each, with names of its engine %.1f\n", blocks,
		float64(sizes[0])/float64(blocks), float64(sizes[1])/float64(blocks))
	return nil
}
