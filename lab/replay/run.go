package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/key"
)

// Options say what Run plays, and how.
type Options struct {
	Trace io.Reader
	Name  string // of the trace: stands for it in errors, and keeps it apart from others in the daemon

	Socket      string // of the daemon
	Concurrency int    // clients that play at the same time

	BlockTokens  int
	Unit         time.Duration // of the trace's times; 0 = milliseconds
	PayloadBytes int
	Groups       []Group           // of a hybrid model; of others none, and a block has PayloadBytes
	Limit        int               // requests; 0 = all
	SaveUnfull   bool              // also store the last, partial block of each prompt
	PerRequest   bool              // have Result.PerRequest
	Policy       client.WaitPolicy // when a client stops waiting for its prefix
	Deadline     time.Duration     // for loading; 0 = as the daemon is configured, and nobody is late
	// Speed makes requests start when their timestamps say, so many times as
	// fast as time passed in the trace; 0 starts them as soon as a client is
	// free.
	Speed float64

	// Observe is told of each outcome, one at a time, in the order in which
	// they come. It may keep nothing of it. May be nil.
	Observe func(*Outcome)
}

// Space is where the trace's chunks live. Every option that makes payloads differ is
// part of it, so that replays with other options do not meet.
func (o *Options) Space() key.Space {
	return key.Space{
		Model: "replay", Revision: filepath.Base(o.Name), World: 1,
		DType:       "generated-" + strconv.Itoa(o.PayloadBytes),
		ChunkTokens: o.BlockTokens, Method: key.Given + ":replay",
	}
}

// Run plays a trace: requests start in its order, as fast as the clients are
// done with those before, and with Options.Speed not before their time. Beside
// an error, the first one, the result counts the requests until then.
func Run(ctx context.Context, o Options) (Result, error) {
	space := o.Space()
	control, err := client.Dial(ctx, o.Socket, client.Options{Name: "replay: counters", Inline: true})
	if err != nil {
		return Result{}, err
	}
	defer control.Close()
	before, err := counts(ctx, control)
	if err != nil {
		return Result{}, err
	}
	tally := newShared(&o)
	start := time.Now()
	err = o.play(ctx, &space, tally)
	r := tally.result(time.Since(start))
	r.Complete = err == nil
	if err != nil {
		return r, err
	}
	after, err := counts(ctx, control)
	if err != nil {
		return r, err
	}
	r.Daemon = after.since(before)
	agrees := r.Daemon.agrees(&r)
	r.Agrees = &agrees
	return r, nil
}

// play has the clients take requests from one channel.
func (o *Options) play(ctx context.Context, space *key.Space, tally *shared) error {
	g, ctx := errgroup.WithContext(ctx)
	requests := make(chan Request)
	pace := pace{speed: o.Speed}
	g.Go(func() error {
		defer close(requests)
		n := 0
		for req, err := range Requests(o.Trace, o.Name, Form{o.BlockTokens, o.Unit}) {
			if err != nil {
				return err
			}
			if err := pace.wait(ctx, &req); err != nil {
				return err
			}
			req.number = n
			select {
			case requests <- req:
			case <-ctx.Done():
				return ctx.Err()
			}
			if n++; n == o.Limit {
				break
			}
		}
		return nil
	})
	for i := range o.Concurrency {
		g.Go(func() error {
			c, err := client.Dial(ctx, o.Socket, client.Options{Name: fmt.Sprintf("replay %d", i), Space: space})
			if err != nil {
				return err
			}
			defer c.Close()
			return o.worker(ctx, c, space, requests, tally)
		})
	}
	return g.Wait()
}

func (o *Options) worker(ctx context.Context, c *client.Client, space *key.Space, requests <-chan Request, tally *shared) error {
	b, err := key.NewBuilder(*space)
	if err != nil {
		return err
	}
	play := (&Player{Client: c, PayloadBytes: o.PayloadBytes, Policy: o.Policy, Deadline: o.Deadline}).Play
	if len(o.Groups) > 0 {
		p, err := newGroupPlayer(ctx, c, o)
		if err != nil {
			return err
		}
		play = p.Play
	}
	var chain key.Chain
	for req := range requests {
		prompt, err := o.prompt(b, &chain, &req)
		if err != nil {
			return fmt.Errorf("%w: %s:%d: %w", ErrTrace, o.Name, req.Line, err)
		}
		behind := req.behind()
		outcome, err := play(ctx, prompt)
		outcome.Behind = behind
		if errors.Is(err, client.ErrInconsistentChain) {
			err = fmt.Errorf("%w: an id of this line stands behind other ids elsewhere in the trace, or in another trace of that name played before", err)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", o.Name, req.Line, err)
		}
		tally.add(&outcome, req.number)
	}
	return ctx.Err()
}

// idBytes is the width of a trace's ids as hashes.
const idBytes = 8

// prompt makes the chain of a request. Its hashes are the ids plus one, since
// ids start at 0 and the zero hash names no chunk.
func (o *Options) prompt(b *key.Builder, chain *key.Chain, req *Request) (Prompt, error) {
	raw := make([]byte, 0, idBytes*len(req.BlockIDs))
	lengths := make([]uint32, 0, len(req.BlockIDs))
	left := req.InputTokens
	for _, id := range req.BlockIDs {
		raw = binary.LittleEndian.AppendUint64(raw, id+1)
		n := min(left, o.BlockTokens)
		lengths = append(lengths, uint32(n))
		left -= n
	}
	if err := b.Hashes(chain, idBytes, raw, lengths, key.Options{SaveUnfull: o.SaveUnfull}); err != nil {
		return Prompt{}, err
	}
	p := Prompt{Client: client.Hashes(idBytes, raw, lengths), Chain: chain, Tokens: req.InputTokens}
	p.Client.SaveUnfull = o.SaveUnfull
	return p, nil
}

// shared is a Tally that several workers fill.
type shared struct {
	observe    func(*Outcome)
	perRequest bool
	mu         struct {
		sync.Mutex
		tally *Tally
	}
}

func newShared(o *Options) *shared {
	s := &shared{observe: o.Observe, perRequest: o.PerRequest}
	if s.observe == nil {
		s.observe = func(*Outcome) {}
	}
	s.mu.tally = NewTally()
	return s
}

// add is the outcome of a request of the trace.
func (s *shared) add(o *Outcome, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tally.Add(o)
	if s.perRequest {
		s.mu.tally.note(number, int64(o.Hit.Tokens))
	}
	s.observe(o)
}

func (s *shared) result(took time.Duration) Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tally.Result(took)
}
