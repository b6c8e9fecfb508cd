package server

import (
	"cmp"
	"math"
	"strings"
	"time"

	"github.com/kvstored/kvstored/internal/hint"
	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/prefetch"
)

// batchedBytes is more than what the reply has for one prompt, besides refs.
const batchedBytes = 768

// handleBatch is a prefetch for each of many prompts. The error of one prompt
// is the answer for that one only.
func handleBatch(c *reader, h wire.Header, body []byte) error {
	var req wire.BatchRequest
	if err := req.Decode(body); err != nil {
		return err
	}
	if req.Shared.Lengths > 0 {
		return refuse(wire.CodeBadRequest, "lengths: a lookup or a prefetch names them, a batch does not")
	}
	began := time.Now()
	prompts, errs, err := promptsOf(c, &req)
	if err != nil {
		return err
	}
	said, wished := hint.Read(req.Shared.Configs)
	reply := wire.BatchReply{Jobs: make([]wire.BatchJob, len(prompts))}
	var jobs []*job
	left := c.maxReply - batchedBytes*len(prompts) // for refs
	for i := range prompts {
		if errs[i] = cmp.Or(errs[i], c.ctx.Err()); errs[i] == nil {
			var j *job
			a := ask{
				began: began, search: searchSet(req.Search), flags: req.Flags, policy: req.Policy, loadMillis: req.LoadMillis,
				lookupID: req.Prompts[i].LookupID, shared: req.Shared, sent: &req.Prompts[i].Chain,
				advice: said, wishes: wished, observed: req.Prompts[i].Chain.Form == wire.FormRef, refBytes: stateBytes + left/(len(prompts)-i),
			}
			if j, reply.Jobs[i].Prefetch, errs[i] = c.begin(prompts[i].Chain, &a); errs[i] == nil {
				jobs = append(jobs, j)
				left -= 24 * reply.Jobs[i].Prefetch.State.Refs.Len()
				prompts[i].Cached = prompts[i].Chain.Skip + int(reply.Jobs[i].Prefetch.Match.Total.Chunks)
				continue
			}
		}
		c.server.count.failures.add(wire.OpBatch, codeOf(errs[i]))
		text := errs[i].Error()
		reply.Jobs[i].Code, reply.Jobs[i].Text = codeOf(errs[i]), strings.ToValidUTF8(text[:min(len(text), batchedBytes/2)], "")
	}
	var order []uint32
	for _, i := range prefetch.Order(prompts, int(min(req.MaxOvertaken, math.MaxInt32))) {
		order = append(order, uint32(i))
	}
	reply.Order = wire.ViewU32s(order)
	c.reply(h, &reply)
	c.flush() // the client must know the jobs before their pushes
	for _, j := range jobs {
		if j.loads() {
			j.run()
		}
		j.age()
	}
	return nil
}

// promptsOf builds the chains of a batch. One that cannot be built has no chunks
// and an error.
func promptsOf(c *reader, req *wire.BatchRequest) ([]prefetch.Prompt, []error, error) {
	prompts, errs := make([]prefetch.Prompt, len(req.Prompts)), make([]error, len(req.Prompts))
	pieces := int64(0)
	for i := range req.Prompts {
		p := &req.Prompts[i]
		prompts[i] = prefetch.Prompt{Chain: new(key.Chain), Overtaken: int(min(p.Overtaken, math.MaxInt32))}
		if errs[i] = promptOf(c, prompts[i].Chain, &p.Chain, &req.Shared); errs[i] != nil {
			prompts[i].Chain.Reset()
		}
		if pieces += int64(prompts[i].Chain.Len()) * int64(max(1, req.Shared.Groups.Len())+req.Shared.Ranks.Len()); pieces > key.MaxChunks {
			return nil, nil, tooLarge(key.MaxChunks, "the prompts have more than %d chunks in all; send fewer at a time", key.MaxChunks)
		}
	}
	return prompts, errs, nil
}
