package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/kvstored/kvstored/client"
)

const (
	smallChunks = 4
	smallBytes  = 64 << 10
	smallCount  = 16 // prompts that the other client goes through
	smallSpan   = 5 * time.Second
)

// smallClient is the other client: a process of its own, as engines are, so that
// it does not wait for the processor that this one compares bytes with.
type smallClient struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	took *bufio.Reader
}

// startSmall starts the process. It has stored its prompts when it returns.
func startSmall(socket string, pause time.Duration) (*smallClient, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := &smallClient{cmd: exec.Command(self, "-small", "-socket", socket, "-pause", pause.String())}
	s.cmd.Stderr = os.Stderr
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s.took = bufio.NewReader(out)
	return s, s.cmd.Start()
}

// stop ends the process.
func (s *smallClient) stop() error {
	return errors.Join(s.in.Close(), s.cmd.Wait())
}

// during returns how long prompts took while do ran.
func (s *smallClient) during(do func() error) ([]time.Duration, error) {
	if _, err := s.in.Write([]byte{1}); err != nil {
		return nil, err
	}
	failed := do()
	if _, err := s.in.Write([]byte{0}); err != nil {
		return nil, errors.Join(failed, err)
	}
	var n uint32
	if err := binary.Read(s.took, binary.LittleEndian, &n); err != nil {
		return nil, errors.Join(failed, fmt.Errorf("the small client has ended: %w", err))
	}
	took := make([]time.Duration, n)
	if err := binary.Read(s.took, binary.LittleEndian, took); err != nil {
		return nil, errors.Join(failed, err)
	}
	slices.Sort(took)
	return took, failed
}

// serveSmall is the process: it gets prompts between a 1 and a 0 on in, and
// writes what each took then.
func serveSmall(ctx context.Context, c *client.Client, in io.Reader, out io.Writer, pause time.Duration) error {
	for p := range smallCount {
		if err := storeSmall(ctx, c, p+1); err != nil {
			return err
		}
	}
	for {
		var b [1]byte
		if _, err := io.ReadFull(in, b[:]); err != nil {
			return nil // that was all
		}
		over := make(chan struct{})
		go func() {
			defer close(over)
			_, _ = io.ReadFull(in, b[:])
		}()
		took, err := waits(ctx, c, over, pause)
		if err != nil {
			return err
		}
		if err := binary.Write(out, binary.LittleEndian, uint32(len(took))); err != nil {
			return err
		}
		if err := binary.Write(out, binary.LittleEndian, took); err != nil {
			return err
		}
	}
}

func storeSmall(ctx context.Context, c *client.Client, p int) error {
	o := client.ReserveOptions{Count: smallChunks, Size: smallBytes, Wait: putWait}
	_, err := c.Store(ctx, client.Tokens(sequence(p, smallChunks)), o, nil, func(i int, dst []byte) error {
		stamp(dst, i)
		return nil
	})
	return err
}

// waits gets small prompts one after the other until done, and returns how long
// each took.
func waits(ctx context.Context, c *client.Client, done <-chan struct{}, pause time.Duration) (took []time.Duration, err error) {
	for p := 0; ; p++ {
		select {
		case <-done:
			return took, nil
		case <-time.After(pause):
		}
		start := time.Now()
		n := 0
		for piece, err := range c.Pieces(ctx, client.Tokens(sequence(1+p%smallCount, smallChunks)), client.PrefetchOptions{Policy: client.WaitComplete}) {
			if err != nil {
				return took, err
			}
			n += len(piece.Chunks)
		}
		took = append(took, time.Since(start))
		if n != smallChunks {
			return took, fmt.Errorf("%d of %d chunks of a small prompt came back", n, smallChunks)
		}
	}
}

func at(took []time.Duration, q float64) time.Duration {
	return took[int(q*float64(len(took)-1))].Round(time.Microsecond)
}

func report(alone, beside []time.Duration) {
	if len(alone) == 0 || len(beside) == 0 {
		return
	}
	for what, took := range map[string][]time.Duration{"small alone": alone, "small beside": beside} {
		fmt.Printf("%-12s %8d prompts: p50 %v, p99 %v\n", what, len(took), at(took, 0.5), at(took, 0.99))
	}
	fmt.Printf("small p99 beside / alone: %.1f; p50: %.1f\n", float64(at(beside, 0.99))/float64(at(alone, 0.99)), float64(at(beside, 0.5))/float64(at(alone, 0.5)))
}
