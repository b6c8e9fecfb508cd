package main

import (
	"fmt"

	"github.com/kvstored/kvstored/router/index"
	"github.com/kvstored/kvstored/router/pick"
)

// ours is kvstored-router without its sockets.
type ours struct {
	settings
	index   *index.Index
	shard   *index.Shard
	at      []index.At
	speeds  pick.Speeds
	loads   *pick.Loads
	random  func() float64
	matches []index.Match
	open    map[*request]uint64
}

func newOurs(s settings, running float64, random func() float64) (*ours, error) {
	x, err := index.New(index.Options{})
	if err != nil {
		return nil, err
	}
	o := &ours{settings: s, index: x, random: random, speeds: pick.DefaultSpeeds(), loads: pick.NewLoads(1<<20, 3600), open: make(map[*request]uint64)}
	o.speeds.Prefill, o.speeds.Running = s.prefill, running
	for i := range s.workers {
		at := index.At{Worker: index.Worker{ID: fmt.Sprint(i)}}
		if err := x.Register(at.Worker, index.WorkerOptions{}); err != nil {
			return nil, err
		}
		o.at = append(o.at, at)
	}
	o.shard, err = x.Open(index.Name{Model: "m"}, index.Config{BlockTokens: s.blockTokens})
	return o, err
}

func (o *ours) choose(now float64, r *running) (engine, said int) {
	o.matches = o.shard.Find(o.matches[:0], r.blocks, index.FindOptions{})
	has := make(map[index.Worker]*index.Match, len(o.matches))
	for i := range o.matches {
		has[o.matches[i].Worker] = &o.matches[i]
	}
	estimates := make([]pick.Estimate, o.workers)
	for i, at := range o.at {
		c := pick.Candidate{Worker: at.Worker, Queue: o.loads.Queue(now, at.Worker, &o.speeds), Speeds: o.speeds}
		if m := has[at.Worker]; m != nil {
			for medium := range index.Medium(index.Media) {
				c.Tokens[medium] = m.Tokens(medium)
			}
		}
		estimates[i] = pick.Expect(r.tokens, &c)
	}
	engine = pick.Choose(estimates, 0, o.random)
	e := estimates[engine]
	id, err := o.loads.Reserve(now, o.at[engine].Worker, e.Work(), r.tokens-e.Reused)
	if err != nil {
		panic(err) // there is room for all
	}
	o.open[r.request] = id
	return engine, e.Reused
}

func (o *ours) first(now float64, engine int, r *running, gone []uint64) {
	_, err := o.loads.First(now, o.open[r.request])
	if err == nil {
		_, err = o.shard.Store(o.at[engine], index.Root, r.blocks)
	}
	if err == nil {
		_, err = o.shard.Remove(o.at[engine], gone)
	}
	if err != nil {
		panic(err)
	}
}

func (o *ours) last(now float64, _ int, r *running) {
	if _, err := o.loads.Free(now, o.open[r.request]); err != nil {
		panic(err)
	}
	delete(o.open, r.request)
}
