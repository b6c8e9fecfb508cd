package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvstored/kvstored/client"
	"github.com/kvstored/kvstored/internal/human"
)

func putCommand() *cobra.Command {
	var (
		socket string
		flags  promptFlags
	)
	cmd := &cobra.Command{
		Use:   "put [FILE]",
		Short: "Store a file as the KV of a prompt",
		Long: `Store a file (standard input without one) as the KV of a prompt: cut into as
many equal payloads as the prompt has chunks, the last of which may be smaller.
Chunks that are there already stay as they are. The file may be larger than
memory; what does not come from a regular file is written to a temporary one first.
` + promptHelp,
		Example: `  kvstored put --text "You are a helpful assistant." kv.bin
  kvstored get --text "You are a helpful assistant." | cmp - kv.bin`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			prompt, tokens, err := flags.prompt(cmd.InOrStdin())
			if err != nil {
				return err
			}
			file, err := openPayload(cmd.InOrStdin(), args, flags.file == "-")
			if err != nil {
				return err
			}
			payloads, err := cut(file, file.Size(), flags.chunks(tokens))
			if err != nil {
				return err
			}
			return withClient(cmd.Context(), socket, client.Options{Space: &flags.space}, func(c *client.Client) error {
				n, err := different(cmd.Context(), c, prompt, payloads)
				sum := putSum{Chunks: payloads.n, Different: n}
				if err == nil && n == 0 { // else half of the prompt would be of another payload
					bar := human.NewBytes(progressOf(cmd), "put", payloads.total)
					sum, err = put(cmd.Context(), c, prompt, payloads, bar)
					bar.End()
				}
				if err != nil {
					return err
				}
				sum.Tokens = len(tokens)
				return show(cmd, &sum, sum.print)
			})
		},
	}
	socketFlag(cmd, &socket)
	jsonFlag(cmd)
	quietFlag(cmd)
	flags.add(cmd)
	return cmd
}

// putSum is what became of a put.
type putSum struct {
	Chunks int `json:"chunks"`
	Tokens int `json:"tokens"`
	Stored int `json:"stored_chunks"`
	Bytes  int `json:"stored_bytes"`
	There  int `json:"present_chunks"` // before, or being stored by another client
	Left   int `json:"refused_chunks"`
	// OverQuota says that the space, not the tier, has no room for the rest.
	OverQuota bool `json:"over_quota"`
	// Different of those that were there hold other bytes, and keep them.
	Different int `json:"different_chunks"`

	why client.Code // the chunks that are left have no room
}

// different counts the chunks that are there and hold other bytes than payloads.
func different(ctx context.Context, c *client.Client, prompt client.Prompt, payloads parts) (n int, err error) {
	_, err = get(ctx, c, prompt, func(p client.Piece) error {
		for i, b := range p.Chunks {
			if p.First+i >= payloads.n {
				return nil
			}
			same, err := payloads.equal(p.First+i, b)
			if err != nil {
				return err
			}
			if !same {
				n++
			}
		}
		return nil
	})
	return n, err
}

// putWait is how long put waits for room, or for the disk to come after.
const putWait = 10 * time.Second

// put stores payloads as the chunks of a prompt, as many at a time as there is
// room for.
func put(ctx context.Context, c *client.Client, prompt client.Prompt, payloads parts, bar *human.Progress) (putSum, error) {
	sum := putSum{Chunks: payloads.n}
	results, err := c.Store(ctx, prompt, client.ReserveOptions{Sizes: payloads.sizes(), Wait: putWait}, nil, func(i int, dst []byte) error {
		bar.At(int64(i)*payloads.each, payloads.total) // those before it are stored, or were there
		return payloads.read(i, dst)
	})
	sum.count(results, payloads)
	var why client.Code
	if errors.As(err, &why) && refusals[why] != "" {
		sum.Left += payloads.n - len(results)
		sum.why, sum.OverQuota = why, why == client.ErrOverQuota
		err = nil
	}
	return sum, err
}

// refusals say why a chunk has no room, and what to do.
var refusals = map[client.Code]string{
	client.ErrNoSpace:    "all of DRAM is in use by others, or leads to these; try later, or raise cpu.capacity",
	client.ErrDeclined:   "what is there is worth more than this chunk; see docs/eviction.md",
	client.ErrOverBudget: "one client may fill 0.4 of DRAM at a time, half of that while others are connected, and what leads to these stays in DRAM until a tier below has it: 0.8 of DRAM at most; raise cpu.capacity",
	client.ErrOverQuota:  "all that the quota of its space allows is in use, or leads to it; see spaces.quota",
}

// count adds the results of the first payloads.
func (s *putSum) count(results []client.Stored, payloads parts) {
	for i, r := range results {
		switch r.Code {
		case client.ResultStored:
			s.Stored++
			s.Bytes += int(payloads.size(i))
		case client.ResultDiffers:
			s.Different++
		default: // the same bytes, or another client is storing them
			s.There++
		}
	}
}

func (s *putSum) print(w io.Writer) error {
	fmt.Fprintf(w, "stored %d of %s (%s)", s.Stored, human.Plural(s.Chunks, "chunk"), human.Bytes(s.Bytes))
	if s.There > 0 {
		fmt.Fprintf(w, ", %d there already", s.There)
	}
	fmt.Fprintln(w)
	if s.Different > 0 {
		return fmt.Errorf("other bytes were stored before for %s of this prompt, and stay; delete them first, or use another --salt", human.Plural(s.Different, "chunk"))
	}
	if s.Left > 0 {
		return fmt.Errorf("no room for %s: %s", human.Plural(s.Left, "chunk"), refusals[s.why])
	}
	return nil
}

// openPayload is the file that args names, or standard input, from where it stands now. The
// end of the command closes it. Taken says that the tokens come from there already.
func openPayload(stdin io.Reader, args []string, taken bool) (*io.SectionReader, error) {
	from := stdin
	if len(args) > 0 && args[0] != "-" {
		f, err := os.Open(args[0])
		if err != nil {
			return nil, err
		}
		from = f
	} else if taken {
		return nil, usage(errors.New("standard input is the tokens already; name a file for the payload"))
	}
	f, ok := from.(*os.File)
	if !ok {
		return spool(from)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a folder; name a file", f.Name())
	case !info.Mode().IsRegular():
		return spool(f)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	return io.NewSectionReader(f, at, max(0, info.Size()-at)), err
}

// spool copies r into a temporary file that has no name any more. A payload is
// cut by its length, and chunks that are there already are compared first, so that it
// is read twice.
func spool(r io.Reader) (*io.SectionReader, error) {
	f, err := os.CreateTemp("", "kvstored-put-")
	if err != nil {
		return nil, fmt.Errorf("temporary file for the payload: %w; set TMPDIR to a folder with room, or name a file", err)
	}
	size := int64(0)
	if err = os.Remove(f.Name()); err == nil {
		size, err = io.Copy(f, r)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy the payload to %s: %w; set TMPDIR to a folder with room, or name a file", f.Name(), err), f.Close())
	}
	return io.NewSectionReader(f, 0, size), nil
}

// parts are what a file is cut into, to be stored as the chunks of a prompt:
// n of each bytes, the last of the rest.
type parts struct {
	from  io.ReaderAt
	n     int
	each  int64
	total int64
	buf   []byte // to compare with
}

// cut divides the first size bytes of from into n payloads, all of the same
// length but the last.
func cut(from io.ReaderAt, size int64, n int) (parts, error) {
	if size < int64(n) {
		return parts{}, fmt.Errorf("%s for %s: a payload has at least one byte", human.Plural(int(size), "byte"), human.Plural(n, "chunk"))
	}
	each := (size + int64(n) - 1) / int64(n)
	if int64(n-1)*each >= size { // the last would have nothing
		each = size / int64(n)
	}
	p := parts{from: from, n: n, each: each, total: size, buf: make([]byte, 64<<10)}
	if largest := max(each, p.size(n-1)); largest > math.MaxUint32 {
		return parts{}, fmt.Errorf("%d bytes for each of %s is more than a payload can have; use a prompt of more tokens, or a smaller --chunk-tokens", largest, human.Plural(n, "chunk"))
	}
	return p, nil
}

// size is the bytes of payload i.
func (p parts) size(i int) int64 {
	if i < p.n-1 {
		return p.each
	}
	return p.total - int64(p.n-1)*p.each
}

func (p parts) sizes() []uint32 {
	out := make([]uint32, p.n)
	for i := range out {
		out[i] = uint32(p.size(i))
	}
	return out
}

// read fills dst, as long as payload i, with it.
func (p parts) read(i int, dst []byte) error {
	if n, err := p.from.ReadAt(dst, int64(i)*p.each); n < len(dst) { // perhaps the file was made shorter
		return fmt.Errorf("read payload %d: %w", i, err)
	}
	return nil
}

// equal reports whether payload i is b.
func (p parts) equal(i int, b []byte) (bool, error) {
	if int64(len(b)) != p.size(i) {
		return false, nil
	}
	for off := int64(i) * p.each; len(b) > 0; {
		part := p.buf[:min(len(b), len(p.buf))]
		if n, err := p.from.ReadAt(part, off); n < len(part) {
			return false, fmt.Errorf("read payload %d: %w", i, err)
		}
		if !bytes.Equal(part, b[:len(part)]) {
			return false, nil
		}
		b, off = b[len(part):], off+int64(len(part))
	}
	return true, nil
}
