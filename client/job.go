package client

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/wire"
)

// All, as the number of tokens to wait for, waits until a job is done.
const All = math.MaxInt64

// PrefetchOptions say how a job goes about it. The zero value searches all
// tiers and leaves the rest to the daemon's configuration.
type PrefetchOptions struct {
	Search   Tiers
	Pin      bool // protect what was matched under LookupID
	Policy   WaitPolicy
	Deadline time.Duration     // for loading; 0 means the configured one
	LookupID string            // the engine's name for its request
	Configs  map[string]string // the engine's request_configs
	// Ranks are the spaces of the other ranks of a tensor-parallel group: a
	// chunk counts only if they have it too. The prompt is hashed as in its
	// own space, so method, chunk tokens and salt must be equal.
	Ranks []*Space
	// Groups are those of a hybrid model, the prompt's own space first; see
	// LookupOptions. Nothing is ready before all is that the longest usable prefix
	// needs, and Piece reads it.
	Groups []Group
	// PrefillRate, in tokens a second, asks for advice: how much to load and
	// how much to compute. The job loads no more than that.
	PrefillRate uint32
	// Why asks why part of the prompt is missing; see Match.Missing.
	Why bool
}

// Job is the prefix of one prompt, on its way into DRAM and leased as it
// arrives. Its methods may be called concurrently. End it with Release or
// Cancel; if neither is called its lease lasts until it is too old.
type Job struct {
	c          *Client
	id         uint64
	match      Match
	policy     WaitPolicy
	ranks      int     // refs of one chunk
	groupRanks int     // ranks of a job with groups, whose refs are counted one by one; or 0
	advice     *Advice // nil unless it was asked for
	faults     []Fault // of Configs

	mu struct {
		sync.Mutex
		state   State
		refs    []wire.Ref  // of all ranks of chunk 0, then of chunk 1, ...
		needs   wire.Needs  // what refs are of, in a job with groups
		ended   bool        // Release or Cancel was called
		changed base.Signal // closed when state changes; nil while no call waits
	}
}

// Prefetch leases the leading run of a prompt that is in DRAM, and starts to
// promote the stored chunks behind it. The run that came with the reply is
// ready at once.
func (c *Client) Prefetch(ctx context.Context, p Prompt, o PrefetchOptions) (*Job, error) {
	ch, err := c.chain(wire.OpPrefetch, &p)
	if err != nil {
		return nil, err
	}
	req := wire.PrefetchRequest{
		Chain: ch, Search: o.Search, Policy: o.Policy, LoadMillis: wire.Within(o.Deadline).Millis, LookupID: o.LookupID,
		Shared: wire.Shared{
			Ranks: handles(o.Ranks), PrefillRate: o.PrefillRate, Configs: pairs(o.Configs), Groups: groupsOf(o.Groups),
			Grain: p.grain(), Why: o.Why,
		},
	}
	if o.Pin {
		req.Flags |= wire.PrefetchPin
	}
	j := &Job{c: c, policy: o.Policy, ranks: 1 + len(o.Ranks)}
	if n := len(o.Groups); n > 0 {
		j.ranks, j.groupRanks = 1, 1+len(o.Ranks)/n
	}
	undo := func(body []byte) error {
		var m wire.PrefetchReply
		err := m.Decode(body)
		if err == nil {
			c.link.giveBack(wire.OpRelease, &wire.IDRequest{ID: m.Job})
		}
		return err
	}
	if err := c.link.do(ctx, wire.OpPrefetch, &req, j.begin, undo); err != nil {
		return nil, err
	}
	return j, nil
}

// begin reads the reply that made the job. The job is known before the reader
// comes to its first push.
func (j *Job) begin(body []byte) error {
	var m wire.PrefetchReply
	if err := m.Decode(body); err != nil {
		return err
	}
	j.id, j.match, j.advice, j.faults = m.Job, matchOf(&m.Match, m.Worth), m.Advice, m.Faults
	j.match.Grouped, j.match.Missing = groupedOf(m.Grouped), m.Missing
	if err := j.apply(&m.State); err != nil {
		return err
	}
	j.c.mu.Lock()
	defer j.c.mu.Unlock()
	j.c.mu.jobs[j.id] = j
	return nil
}

// ID names the job and its lease on this connection.
func (j *Job) ID() uint64 { return j.id }

// Match is the prefix that was found when the job was made.
func (j *Job) Match() Match { return j.match }

// Advice is how much of the match to load and how much to compute. It is false
// unless the job was made with a PrefillRate.
func (j *Job) Advice() (Advice, bool) {
	if j.advice == nil {
		return Advice{}, false
	}
	return *j.advice, true
}

// Faults are the Configs of the request that did not count. It is empty for a daemon
// that does not tell.
func (j *Job) Faults() []Fault { return j.faults }

// Prompt is the prompt of the job by reference, so that its tokens or hashes
// are not sent again. It is good until the job ends.
func (j *Job) Prompt() Prompt { return Prompt{form: wire.FormRef, ref: j.id} }

// State is the newest state that arrived. Nothing arrives while no call waits.
func (j *Job) State() State {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.mu.state
}

// Ready is what can be read, of the newest state that arrived.
func (j *Job) Ready() (chunks int, tokens int64) {
	n := j.State().Ready
	return int(n.Chunks), int64(n.Tokens)
}

// Wait returns when minTokens are ready (All: everything that will be), or
// when the job is done. The state says what can be used, also beside an error:
// a context that ends is a deadline of the caller's own.
func (j *Job) Wait(ctx context.Context, minTokens int64) (State, error) {
	pushed := j.c.hello.Granted&wire.FeaturePushes != 0 && j.policy != BestEffort
	for {
		j.mu.Lock()
		s := j.mu.state
		if s.Done || int64(s.Ready.Tokens) >= minTokens || j.mu.ended {
			err := j.live("wait")
			j.mu.Unlock()
			return s, err
		}
		changed, from := j.mu.changed.Next(), len(j.mu.refs)/j.ranks
		j.mu.Unlock()

		var err error
		if pushed {
			err = j.c.link.answered(ctx, wire.OpWait, changed)
		} else {
			err = j.ask(ctx, minTokens, from)
		}
		if err != nil {
			return j.State(), err
		}
	}
}

// ask has the daemon answer when enough is ready.
func (j *Job) ask(ctx context.Context, minTokens int64, from int) error {
	timeout := wire.Deadline{Given: true, Millis: math.MaxUint32}
	if deadline, ok := ctx.Deadline(); ok {
		timeout = wire.Within(time.Until(deadline))
	}
	req := wire.WaitRequest{Job: j.id, MinTokens: uint64(max(0, minTokens)), Deadline: timeout, From: uint32(from)}
	return j.c.link.do(ctx, wire.OpWait, &req, j.update, j.update) // later states build on this one
}

// live refuses op on a job that was ended here. It is called with the lock.
func (j *Job) live(op string) error {
	if j.mu.ended {
		return refuse(op, ErrUnknownJob, "job %d was released or cancelled: its lease is gone", j.id)
	}
	return nil
}

// ref is where chunk i of the first rank lies.
func (j *Job) ref(i int) (wire.Ref, error) { return j.refOf(0, i) }

func (j *Job) refOf(rank, i int) (wire.Ref, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.live("chunk"); err != nil {
		return wire.Ref{}, err
	}
	if i < 0 || i >= int(j.mu.state.Ready.Chunks) || j.groupRanks > 0 {
		return wire.Ref{}, fmt.Errorf("kvstored: chunk %d of job %d: %w: %d are", i, j.id, ErrNotReady, j.mu.state.Ready.Chunks)
	}
	return j.mu.refs[i*j.ranks+rank], nil
}

// Sum is the XXH3-64 (seed 0) of chunk i, which must be ready.
func (j *Job) Sum(i int) (uint64, error) {
	r, err := j.ref(i)
	return r.Sum, err
}

// Size is the payload bytes and the tokens of chunk i, which must be ready.
func (j *Job) Size(i int) (bytes, tokens int, err error) {
	r, err := j.ref(i)
	return int(r.Length), int(r.Tokens), err
}

// Chunk returns the payload of chunk i, which must be ready. With shared
// memory it is a view of the daemon's own: read-only, and good only under the
// lease. Without, it is a copy fetched over the socket.
func (j *Job) Chunk(ctx context.Context, i int) ([]byte, error) {
	r, err := j.ref(i)
	if err != nil {
		return nil, err
	}
	if !j.c.Mapped() {
		p := make([]byte, r.Length)
		return p, j.fetch(ctx, p, i, r)
	}
	return j.c.maps.viewed(r)
}

// ChunkOf is Chunk for one rank of a job about several: 0 is the prompt's own
// space, the others follow as in PrefetchOptions.Ranks. It takes shared memory;
// without, get the chunks of each rank by its space.
func (j *Job) ChunkOf(rank, i int) ([]byte, error) {
	if rank < 0 || rank >= j.ranks {
		return nil, refuse("chunk", ErrBadRequest, "rank %d: job %d has %d", rank, j.id, j.ranks)
	}
	if !j.c.Mapped() {
		return nil, refuse("chunk", ErrUnsupported, "the chunks of ranks take shared memory; use Get with the space of each")
	}
	r, err := j.refOf(rank, i)
	if err != nil {
		return nil, err
	}
	return j.c.maps.viewed(r)
}

// Copy copies the payload of chunk i, which must be ready, into dst and
// returns its length. The bytes are good if Release says so afterwards.
func (j *Job) Copy(ctx context.Context, dst []byte, i int) (int, error) {
	r, err := j.ref(i)
	if err != nil {
		return 0, err
	}
	if len(dst) < int(r.Length) {
		return 0, fmt.Errorf("kvstored: chunk %d of job %d has %d bytes: %w", i, j.id, r.Length, io.ErrShortBuffer)
	}
	if !j.c.Mapped() {
		return int(r.Length), j.fetch(ctx, dst[:r.Length], i, r)
	}
	j.c.maps.mu.RLock()
	defer j.c.maps.mu.RUnlock()
	p := view(j.c.maps.mu.arena, r.Offset, r.Length)
	if p == nil {
		return 0, ErrClosed
	}
	return arena.CopyCold(dst, p), nil
}

// Renew starts the age of the lease anew and returns how long it holds.
func (j *Job) Renew(ctx context.Context) (time.Duration, error) {
	var m wire.RenewReply
	err := j.c.link.do(ctx, wire.OpRenew, &wire.IDRequest{ID: j.id}, m.Decode, nil)
	return time.Duration(m.HoldsMillis) * time.Millisecond, err
}

// Release ends the job and gives the lease back. Only if it returns nil are
// the bytes that were read good: an error that is ErrRevoked says that the
// lease ended before, any other that neither side can tell.
func (j *Job) Release(ctx context.Context) error { return j.ReleaseSoon().Wait(ctx) }

// ReleaseSoon is Release without a round trip of its own: the request goes out
// with the next one on this connection, or with Wait.
func (j *Job) ReleaseSoon() *Release {
	j.end()
	r := &Release{job: j}
	r.call = j.c.link.later(wire.OpRelease, &wire.IDRequest{ID: j.id}, r.reply.Decode)
	return r
}

// Release is the end of a lease on its way.
type Release struct {
	job   *Job
	call  *call
	reply wire.ReleaseReply
}

// Wait returns the error that Job.Release would, again and again. Call it before
// trusting the bytes that were read. Where ctx ends before, the release goes on, and a
// later Wait returns what became of it.
func (r *Release) Wait(ctx context.Context) error {
	if _, err := r.job.c.link.finish(ctx, r.call); err != nil {
		return err
	}
	if r.reply.Code != wire.CodeOK {
		return refuse("release", ErrRevoked, "the lease of job %d did not hold: forget what was read, and renew in time or raise lease.max_age", r.job.id)
	}
	return nil
}

// Cancel ends the job, gives the lease back and returns the last state. Use it
// where no payload was read.
func (j *Job) Cancel(ctx context.Context) (State, error) {
	j.end()
	err := j.c.link.do(ctx, wire.OpRelease, &wire.IDRequest{ID: j.id}, func(body []byte) error {
		var m wire.ReleaseReply
		if err := m.Decode(body); err != nil {
			return err
		}
		return j.apply(&m.State)
	}, nil)
	return j.State(), err
}

// end makes the job unreadable and unknown here, and wakes the calls that wait
// for it.
func (j *Job) end() {
	j.c.mu.Lock()
	delete(j.c.mu.jobs, j.id)
	j.c.mu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.ended = true
	j.mu.changed.Wake()
}

// State is how far a job is.
type State struct {
	Done       bool
	Reason     Reason // why it is done, or Running
	FailedTier string // with StoppedFailed
	Ready      Count  // the leading run that Chunk and Copy can read; it only grows
	Tiers      TierCounts
}

// update reads a job state, from a push or a reply.
func (j *Job) update(body []byte) error {
	var m wire.JobState
	if err := m.Decode(body); err != nil {
		return broken("%w", err)
	}
	return j.apply(&m)
}

// apply takes in a state. Refs may repeat known ones, never leave a gap.
func (j *Job) apply(m *wire.JobState) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.mu.ended { // otherwise pushes were passed over, and no caller reads any more
		if err := j.addRefs(int(m.First), m.Refs); err != nil {
			return err
		}
		if j.mu.needs = slices.Clone(m.Needs); !j.enough(m) {
			return broken("job %d: %d chunks are ready, %d refs came", j.id, m.Ready.Chunks, len(j.mu.refs))
		}
	}
	j.mu.state = stateOf(m)
	j.mu.changed.Wake()
	return nil
}

func stateOf(m *wire.JobState) State {
	return State{Done: m.Done(), Reason: m.Code, FailedTier: m.FailedTier.String(), Ready: m.Ready, Tiers: m.Tiers}
}

// addRefs appends those of refs, of which the first is chunk first, that are new.
func (j *Job) addRefs(first int, refs wire.Refs) error {
	first *= j.ranks // from now on in refs
	have, n := len(j.mu.refs), refs.Len()
	switch {
	case first+n <= have || n == 0:
		return nil
	case first > have:
		return broken("job %d: refs from number %d on, but only %d came before", j.id, first, have)
	}
	j.mu.refs = slices.Grow(j.mu.refs, first+n-have)
	for i := have - first; i < n; i++ {
		r := refs.At(i)
		if r.Length > wire.MaxPayloadBytes {
			return broken("job %d: ref %d has %d bytes, more than any chunk", j.id, first+i, r.Length)
		}
		if size := j.c.hello.ArenaBytes; j.c.Mapped() && (r.Offset > size || uint64(r.Length) > size-r.Offset) {
			return broken("job %d: ref %d lies outside the arena", j.id, first+i)
		}
		j.mu.refs = append(j.mu.refs, r)
	}
	return nil
}

// pieceBytes is where a piece ends: what copies of it take in this process.
const pieceBytes = 64 << 20

// Piece is a run of chunks of a prompt: 64 MiB, and what its last chunk is more,
// at most.
type Piece struct {
	First  int      // number of its first chunk in the prompt, after SkipChunks
	Chunks [][]byte // their payloads; good until the next piece
	Tokens int64    // in them
	// Reason says what ended the piece. Behind one with StoppedOverBudget the
	// prompt goes on in the next.
	Reason Reason

	bytes int
}

// Pieces reads the stored prefix of a prompt, also one longer than DRAM: as
// much at a time as a piece has and one client may lease. The lease of a piece
// has ended when it is yielded, and held until it was copied, so that its bytes
// are good. An error ends the pieces; so does a piece that ends before the
// stored prefix does, and its Reason says why. There is always a last piece,
// which may be empty.
//
// A prompt by reference (Job.Prompt, Fill.Prompt) must live as long.
func (c *Client) Pieces(ctx context.Context, p Prompt, o PrefetchOptions) iter.Seq2[Piece, error] {
	return func(yield func(Piece, error) bool) {
		var memory [][]byte
		for first := 0; ; {
			piece, err := c.piece(ctx, p, o, memory)
			if err != nil {
				yield(Piece{}, fmt.Errorf("chunks from %d on: %w", first, err))
				return
			}
			piece.First = first
			if !yield(piece, nil) || piece.Reason != StoppedOverBudget || len(piece.Chunks) == 0 {
				return
			}
			first += len(piece.Chunks)
			p.SkipChunks += len(piece.Chunks)
			memory = piece.Chunks
		}
	}
}

// piece copies the chunks of one lease as they become ready.
func (c *Client) piece(ctx context.Context, p Prompt, o PrefetchOptions, memory [][]byte) (Piece, error) {
	job, err := c.Prefetch(ctx, p, o)
	if err != nil {
		return Piece{}, err
	}
	var out Piece
	for done := false; !done && err == nil; {
		var s State
		if s, err = job.Wait(ctx, out.Tokens+1); err != nil {
			break
		}
		if n := int(s.Ready.Chunks); out.bytes >= pieceBytes && n > len(out.Chunks) {
			out.Reason = StoppedOverBudget // there is more
			break
		}
		out.Reason = s.Reason
		err = out.take(ctx, job, int(s.Ready.Chunks), memory)
		done = s.Done && len(out.Chunks) == int(s.Ready.Chunks)
	}
	if gone := job.Release(ctx); err == nil {
		err = gone
	}
	return out, err
}

// take copies chunks up to the n-th, as far as the piece has room for them, into
// memory as far as there is some.
func (out *Piece) take(ctx context.Context, job *Job, n int, memory [][]byte) error {
	for i := len(out.Chunks); i < n && out.bytes < pieceBytes; i++ {
		bytes, tokens, err := job.Size(i)
		if err != nil {
			return err
		}
		var dst []byte
		if i < len(memory) && cap(memory[i]) >= bytes {
			dst = memory[i][:bytes]
		} else {
			dst = make([]byte, bytes)
		}
		if _, err := job.Copy(ctx, dst, i); err != nil {
			return err
		}
		out.Chunks = append(out.Chunks, dst)
		out.bytes += bytes
		out.Tokens += int64(tokens)
	}
	return nil
}

// Store stores chunks of a prompt, however much longer than DRAM they are: as
// many at a time as there is room for. The chunks are those that o says; write
// fills chunk First+i of the prompt, in order, and the daemon takes over the first
// while the next are written. It appends a result for every chunk to out, up to
// the first that has no room: the error that says why is ErrNoSpace, ErrOverBudget
// or ErrOverQuota then. o.Wait is for each part of it. After an error of write the
// chunks before are stored.
func (c *Client) Store(ctx context.Context, p Prompt, o ReserveOptions, out []Stored, write func(i int, dst []byte) error) ([]Stored, error) {
	s, failed := NewWriter(c).Put(ctx, p, o, write)
	out, err := s.results(ctx, out)
	if failed != nil {
		return out, failed
	}
	return out, err
}

// chunksOf is how many chunks of n, from the i-th on, have at least so many bytes
// together, or as many as there are.
func chunksOf(bytes int, sizes []uint32, i, n int) int {
	count := 0
	for sum := 0; i+count < n && sum < bytes; count++ {
		sum += int(sizes[min(i+count, len(sizes)-1)])
	}
	return count
}
