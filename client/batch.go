package client

import (
	"cmp"
	"context"

	"github.com/kvstored/kvstored/internal/wire"
)

// BatchPrompt is one of several prompts that wait to be run.
type BatchPrompt struct {
	Prompt   Prompt
	LookupID string
	// Overtaken is how many prompts that came after this one were run before
	// it already. Count it over the batches a prompt is part of, and no
	// prompt starves.
	Overtaken int
}

// BatchOptions are PrefetchOptions for all prompts of a batch.
type BatchOptions struct {
	PrefetchOptions // LookupID is passed over; Configs are said of every prompt
	// MaxOvertaken is how many later prompts may be run before one: 0 is
	// DefaultOvertaken, less gives the order in which they came.
	MaxOvertaken int
}

// DefaultOvertaken keeps the order of a batch depth first, but for prompts that have
// waited long.
const DefaultOvertaken = 64

// Batch is a Prefetch for each of many prompts.
type Batch struct {
	Jobs   []*Job  // nil where there is none
	Errors []error // why there is none
	// Order is the numbers of the prompts in the order in which to run them,
	// so that most of the prefixes that they share are computed once.
	Order []int
}

// Batch asks for many prompts at once, at most 1,024, given in the order in
// which they came. An error of one prompt is in Errors; an error of the call
// says that there are no jobs.
func (c *Client) Batch(ctx context.Context, prompts []BatchPrompt, o BatchOptions) (*Batch, error) {
	if len(prompts) > wire.MaxBatch {
		return nil, refuse("batch", ErrTooLarge, "%d prompts: use at most %d", len(prompts), wire.MaxBatch)
	}
	req := wire.BatchRequest{
		Search: o.Search, Policy: o.Policy, LoadMillis: millis(o.Deadline),
		MaxOvertaken: uint32(max(0, cmp.Or(o.MaxOvertaken, DefaultOvertaken))), Shared: o.shared(),
	}
	if o.Pin {
		req.Flags |= wire.PrefetchPin
	}
	for i := range prompts {
		p := &prompts[i]
		if p.Prompt.Grain != prompts[0].Prompt.Grain {
			return nil, refuse("batch", ErrBadRequest, "prompt %d has a grain of %d tokens, the first of %d: use one", i, p.Prompt.Grain, prompts[0].Prompt.Grain)
		}
		req.Shared.Grain = p.Prompt.grain()
		ch, err := c.chain(wire.OpBatch, &p.Prompt)
		if err != nil {
			return nil, err
		}
		req.Prompts = append(req.Prompts, wire.BatchPrompt{Chain: ch, LookupID: p.LookupID, Overtaken: uint32(max(0, p.Overtaken))})
	}
	b := &Batch{Jobs: make([]*Job, len(prompts)), Errors: make([]error, len(prompts))}
	err := c.link.do(ctx, wire.OpBatch, &req, func(body []byte) error { return b.begin(c, &o, body) }, func(body []byte) ([]orphan, error) {
		var m wire.BatchReply
		err := m.Decode(body)
		var given []orphan
		for i := range m.Jobs {
			if m.Jobs[i].Code == wire.CodeOK {
				given = append(given, orphan{wire.OpRelease, &wire.IDRequest{ID: m.Jobs[i].Prefetch.Job}})
			}
		}
		return given, err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// begin reads the reply that made the jobs.
func (b *Batch) begin(c *Client, o *BatchOptions, body []byte) error {
	var m wire.BatchReply
	if err := m.Decode(body); err != nil {
		return err
	}
	if len(m.Jobs) != len(b.Jobs) {
		return broken("%d prompts were answered of a batch of %d", len(m.Jobs), len(b.Jobs))
	}
	for i := range m.Order.Len() {
		if n := int(m.Order.At(i)); n < len(b.Jobs) {
			b.Order = append(b.Order, n)
		}
	}
	for i := range m.Jobs {
		a := &m.Jobs[i]
		if a.Code != wire.CodeOK {
			b.Errors[i] = &Error{Op: wire.OpBatch.String(), Code: a.Code, Text: a.Text}
			continue
		}
		j := newJob(c, &o.PrefetchOptions)
		if err := j.accept(&a.Prefetch); err != nil {
			return err
		}
		b.Jobs[i] = j
	}
	return nil
}
