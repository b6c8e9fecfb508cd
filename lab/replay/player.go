package replay

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// Prompt is one prompt to play.
type Prompt struct {
	Client client.Prompt // as the daemon is told
	Chain  *key.Chain    // the same, as the payloads are made from it
	Tokens int           // of the whole prompt, with those in no chunk of Chain
}

// Player plays prompts one after the other over one connection.
type Player struct {
	Client       *client.Client
	PayloadBytes int               // of every chunk
	Policy       client.WaitPolicy // when to stop loading
	Deadline     time.Duration     // for loading; 0 = as the daemon is configured
}

// lateBy is how much later than its deadline an answer may be that counts as
// in time: news travels, and waits its turn for a processor.
const lateBy = 100 * time.Millisecond

// storeWait is how long a reserve may wait for room, and for the disk to catch
// up. An engine computes its payloads, which takes time; a player makes them
// up, and stores faster than any disk writes.
const storeWait = 30 * time.Second

// Mismatch is a byte that the daemon should not have returned.
type Mismatch struct {
	Key    string `json:"key"`
	Offset int    `json:"offset"` // of the first wrong byte; the length where that is wrong
	Tier   string `json:"tier"`   // where the chunk was found
}

// Outcome is what became of one prompt.
type Outcome struct {
	Tokens int // of the prompt
	Chunks int // that the daemon was asked for

	Matched client.Count      // said to be there, in any tier
	Hit     client.Count      // ready in time, verified byte by byte, under a lease that held
	Tiers   client.TierCounts // where the hits were found
	Reason  client.Reason     // why Hit is shorter than Matched

	Lookup time.Duration // until the daemon had said what is there
	Ready  time.Duration // until the prefix could be read; Lookup is part of it
	Behind time.Duration // how late it started, where it had a time to start at
	Late   bool          // the answer came after the deadline, where that is known

	ReadBytes    int64 // verified
	NeededBytes  int64 // of the match of a hybrid model: what all groups need there,
	NeededBelow  int64 // and what of that is below DRAM
	WrittenBytes int64 // committed

	Stored  int  // chunks that are new
	Exists  int  // chunks to be stored that were there already
	Pending int  // chunks that another client was storing
	Refused int  // chunks there was no room for, or nothing that they were worth it
	Revoked bool // the lease did not hold, so nothing counts as a hit

	Mismatches []Mismatch // chunks with a wrong byte
	Differs    int        // chunks that were already there with other bytes
}

// Play asks for a prompt, waits for the ready prefix, verifies it, stores
// the missing chunks, and gives the lease back. An error says that the daemon did
// not follow the protocol or is gone; every other failure is part of
// the outcome. After an error close the client: that gives its leases back.
func (p *Player) Play(ctx context.Context, prompt Prompt) (Outcome, error) {
	o := Outcome{Tokens: prompt.Tokens, Chunks: prompt.Chain.Len()}
	if o.Chunks == 0 {
		return o, nil // shorter than a chunk: no engine would ask
	}
	start := time.Now()
	job, err := p.Client.Prefetch(ctx, prompt.Client, client.PrefetchOptions{Policy: p.Policy, Deadline: p.Deadline})
	o.Lookup = time.Since(start)
	if err != nil {
		return o, err
	}
	o.Matched = job.Match().Total
	state, err := job.Wait(ctx, client.All)
	o.Ready = time.Since(start)
	o.Late = p.Deadline > 0 && o.Ready > p.Deadline+lateBy
	if err != nil {
		return o, err
	}
	o.Hit, o.Tiers, o.Reason = state.Ready, state.Tiers, state.Reason
	if err := p.verify(ctx, job, prompt.Chain, &o); err != nil {
		return o, err
	}
	// Under the lease the chain that the new chunks hang on cannot go away.
	if err := p.store(ctx, job, prompt.Chain, &o); err != nil {
		return o, err
	}
	switch err := job.Release(ctx); {
	case errors.Is(err, client.ErrRevoked):
		o.revoke()
	case err != nil:
		return o, err
	}
	return o, nil
}

// revoke takes the hits back: the bytes may have been overwritten meanwhile.
func (o *Outcome) revoke() {
	o.Revoked, o.Mismatches, o.ReadBytes = true, nil, 0
	o.Hit, o.Tiers = client.Count{}, client.TierCounts{}
}

// verify compares every byte of the ready prefix with its right value. Behind
// a wrong chunk the prefix ends.
func (p *Player) verify(ctx context.Context, job *client.Job, chain *key.Chain, o *Outcome) error {
	good := client.Count{}
	for i := range int(o.Hit.Chunks) {
		b, err := job.Chunk(ctx, i)
		if errors.Is(err, client.ErrRevoked) {
			break // Release will say so
		}
		if err != nil {
			return err
		}
		off := Verify(b, chain.Key(i))
		if off < 0 && len(b) != p.PayloadBytes {
			off = len(b)
		}
		if off >= 0 {
			o.Mismatches = append(o.Mismatches, Mismatch{Key: chain.Key(i).String(), Offset: off, Tier: foundIn(&o.Tiers)})
			continue
		}
		o.ReadBytes += int64(len(b))
		if int(good.Chunks) == i {
			good.Chunks++
			good.Tokens += uint64(chain.Tokens[i])
		}
	}
	o.Hit = good
	return nil
}

// foundIn names the tiers that a prefix came from.
func foundIn(ts *client.TierCounts) string {
	s := ""
	for i, t := range ts {
		if t.Chunks == 0 {
			continue
		}
		if s != "" {
			s += "+"
		}
		s += TierNames[i]
	}
	return s
}

// TierNames are the tiers in the order of client.TierCounts.
var TierNames = [...]string{"cpu", "disk", "remote"}

// TierTitles are the same, as people call them.
var TierTitles = [...]string{"DRAM", "disk", "remote"}

// store reserves, fills and commits the chunks behind the prefix, as many at
// a time as the daemon grants.
func (p *Player) store(ctx context.Context, job *client.Job, chain *key.Chain, o *Outcome) error {
	worth := min(job.Match().Worth, chain.Len())
	o.Refused += chain.Len() - max(worth, int(o.Hit.Chunks))
	for next := int(o.Hit.Chunks); next < worth; {
		fill, err := p.Client.Reserve(ctx, job.Prompt(), client.ReserveOptions{First: next, Size: p.PayloadBytes, Wait: storeWait})
		if noRoom(err) || err == nil && fill.Len() == 0 {
			o.Refused += worth - next
			return nil
		}
		if err != nil {
			return err
		}
		if err := p.fill(ctx, fill, chain, next, o); err != nil {
			return err
		}
		next += fill.Len()
	}
	return nil
}

func noRoom(err error) bool {
	return errors.Is(err, client.ErrOverBudget) || errors.Is(err, client.ErrNoSpace) || errors.Is(err, client.ErrDeclined)
}

// fill makes the payloads of the granted slots and commits them. first is the
// chunk of slot 0.
func (p *Player) fill(ctx context.Context, fill *client.Fill, chain *key.Chain, first int, o *Outcome) error {
	granted := 0
	for i := range fill.Len() {
		switch fill.Status(i) {
		case client.Granted:
			granted++
			Fill(fill.Bytes(i), chain.Key(first+i))
		case client.Exists:
			o.Exists++
		case client.Pending:
			o.Pending++
		}
	}
	if granted == 0 {
		return nil
	}
	results, err := fill.Commit(ctx)
	if err != nil {
		return err
	}
	for i, r := range results {
		if fill.Status(i) != client.Granted {
			continue
		}
		if err := o.count(r, int64(p.PayloadBytes)); err != nil {
			return fmt.Errorf("commit of %s: %w", chain.Key(first+i), err)
		}
	}
	return nil
}

// count counts what became of a granted slot.
func (o *Outcome) count(r client.Stored, bytes int64) error {
	switch r.Code {
	case client.ResultStored:
		o.Stored++
		o.WrittenBytes += bytes
	case client.ResultExists:
		o.Exists++
	case client.ResultPending:
		o.Pending++
	case client.ResultDiffers:
		o.Differs++
	case client.ResultNoSpace, client.ResultOverBudget, client.ResultDeclined:
		o.Refused++
	default:
		return fmt.Errorf("the daemon answered %s for a slot it had granted", r.Code.String())
	}
	return nil
}
