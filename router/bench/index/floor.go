package main

import (
	"runtime"
	"time"

	"github.com/kvstored/kvstored/router/index"
)

// floor is what a query takes of any index that has its blocks in a table and names
// the workers in its answer.
type floor struct {
	reads time.Duration // two reads, the second of a place that the first tells: bucket and block
	write time.Duration // to write the answer down
}

// newFloor measures it with the index's own memory, prompts and answers.
func (l load) newFloor(o *ours) floor {
	words := make([]uint64, max(o.shard.Stats().Memory/8, 1))
	for i := range words {
		words[i] = mix(uint64(i))
	}
	lengths := make(map[*uint64]int, len(l.prompts))
	var longest []index.Match
	for _, p := range l.prompts {
		all := o.find(p)
		lengths[&p[0]] = len(all)
		if len(all) > len(longest) {
			longest = append(longest[:0], all...)
		}
	}
	into, sum := make([]index.Match, len(longest)), uint64(0)
	named := l.loop(func(p []uint64) { sum ^= uint64(lengths[&p[0]]) })
	places := uint64(0) // that the processor cannot guess, and that never come in a circle
	reads := l.loop(func([]uint64) {
		for range 2 {
			places += 0x9e3779b97f4a7c15
			sum = words[(sum^places)%uint64(len(words))]
		}
	})
	write := l.loop(func(p []uint64) { copy(into, longest[:lengths[&p[0]]]) })
	runtime.KeepAlive(sum)
	return floor{reads, write - named}
}
