package history

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/admin"
	"github.com/kvstored/kvstored/key"
)

// store is the part of a client that is checked. Tests put faults before it.
type store interface {
	// Put stores chunks of a prompt from the first on; there may be fewer
	// results than payloads.
	Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, by means) ([]client.Stored, error)
	Lease(ctx context.Context, p client.Prompt) (lease, error)
	Get(ctx context.Context, p client.Prompt, first int) ([][]byte, error)
	// Lookup is how many leading chunks are in some tiers.
	Lookup(ctx context.Context, p client.Prompt, in client.Tiers) (int, error)
	upkeep
}

// upkeep is the part of a store that is about no prompt in particular.
type upkeep interface {
	Delete(ctx context.Context, ks []key.Hash) error
	Purge(ctx context.Context) error
	// Flush reports whether all was written.
	Flush(ctx context.Context, durable bool) (whole bool, err error)
	// Exercise does what leaves nothing to check: pins, warm-ups, room that is
	// not used.
	Exercise(ctx context.Context, p client.Prompt, n uint64) error
	// Empty forgets the chunks in DRAM.
	Empty(ctx context.Context) error
	Client() *client.Client
}

// means is how chunks are stored.
type means struct {
	inline bool          // over the socket
	age    time.Duration // how old they may become; 0: as old as they like
}

// lease is chunks that are being read.
type lease interface {
	Len() int
	Chunk(ctx context.Context, i int) ([]byte, error)
	Release(ctx context.Context) error
}

// reserveWait lets a disk that is behind catch up; a chunk that DRAM drops for
// want of room is no promise broken, but teaches nothing either.
const reserveWait = time.Second

// daemonStore is a store over a connection.
type daemonStore struct {
	c        *client.Client
	operator *admin.Client // nil in a child, which only reads and stores
}

func (s daemonStore) Client() *client.Client { return s.c }

func (s daemonStore) Put(ctx context.Context, p client.Prompt, first int, payloads [][]byte, by means) ([]client.Stored, error) {
	if by.inline {
		return s.c.Put(ctx, p, first, payloads)
	}
	sizes := make([]uint32, len(payloads))
	for i, b := range payloads {
		sizes[i] = uint32(len(b))
	}
	f, err := s.c.Reserve(ctx, p, client.ReserveOptions{First: first, Count: len(payloads), Sizes: sizes, Wait: reserveWait, MaxAge: by.age})
	if err != nil {
		return nil, err
	}
	granted := false
	for i := range f.Len() {
		if f.Status(i) == client.Granted {
			copy(f.Bytes(i), payloads[i])
			granted = true
		}
	}
	if !granted {
		return nil, nil
	}
	return f.Commit(ctx)
}

func (s daemonStore) Lease(ctx context.Context, p client.Prompt) (lease, error) {
	j, err := s.c.Prefetch(ctx, p, client.PrefetchOptions{Policy: client.WaitComplete})
	if err != nil {
		return nil, err
	}
	st, err := j.Wait(ctx, client.All)
	if err != nil {
		return nil, err
	}
	return jobLease{j, int(st.Ready.Chunks)}, nil
}

func (s daemonStore) Get(ctx context.Context, p client.Prompt, first int) ([][]byte, error) {
	chunks, err := s.c.Get(ctx, p, client.GetOptions{First: first})
	var out [][]byte
	for _, c := range chunks {
		out = append(out, c.Bytes)
	}
	return out, err
}

func (s daemonStore) Lookup(ctx context.Context, p client.Prompt, in client.Tiers) (int, error) {
	m, err := s.c.Lookup(ctx, p, in)
	return int(m.Total.Chunks), err
}

func (s daemonStore) Delete(ctx context.Context, ks []key.Hash) error {
	_, err := s.c.DeletePrompt(ctx, client.Chain(&key.Chain{Hashes: ks, Tokens: slices.Repeat([]uint32{uint32(s.c.Space().ChunkTokens())}, len(ks)), Alone: true}))
	return err
}

func (s daemonStore) Purge(ctx context.Context) error {
	space := s.c.Space().ID()
	for step := (admin.ForgetRequest{Space: hex.EncodeToString(space[:])}); ; {
		var p admin.Forgotten
		if err := s.operator.Do(ctx, "POST", "/v1/forget", step, &p); err != nil {
			return err
		}
		if step.After = p.Next; step.After == "" {
			return nil
		}
	}
}

func (s daemonStore) Empty(ctx context.Context) error {
	return s.operator.Do(ctx, "POST", "/v1/forget", admin.ForgetRequest{Tiers: []string{"cpu"}}, new(admin.Forgotten))
}

func (s daemonStore) Flush(ctx context.Context, durable bool) (bool, error) {
	f, err := s.c.Flush(ctx, durable)
	return err == nil && len(f.Left) == 0, err
}

func (s daemonStore) Exercise(ctx context.Context, p client.Prompt, n uint64) error {
	switch n % 4 {
	case 0:
		_, err := s.c.Pin(ctx, p, "consistency", time.Duration(n%500)*time.Millisecond)
		return err
	case 1:
		_, err := s.c.Unpin(ctx, "consistency")
		return err
	case 2:
		_, _, err := s.c.Warm(ctx, p, 0, 0)
		return err
	}
	f, err := s.c.Reserve(ctx, p, client.ReserveOptions{Size: 4 << 10})
	if err != nil {
		return err
	}
	for i := range f.Len() {
		clear(f.Bytes(i)) // must never be seen
	}
	return f.Abort(ctx)
}

type jobLease struct {
	j *client.Job
	n int
}

func (l jobLease) Len() int                                         { return l.n }
func (l jobLease) Chunk(ctx context.Context, i int) ([]byte, error) { return l.j.Chunk(ctx, i) }
func (l jobLease) Release(ctx context.Context) error                { return l.j.Release(ctx) }
