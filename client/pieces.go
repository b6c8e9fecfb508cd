package client

import (
	"context"
	"fmt"
	"iter"
)

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
