package server_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/client"
)

// Writers whose staging window has room for a few chunks only store every byte
// where it belongs, also beside another that shares it.
func TestWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, options{capacity: 16 * mib})
		c := r.dial(client.Options{StagingBytes: 256 * kib})
		done := make(chan error)
		for seed := range uint64(2) {
			go func() { done <- writeAndRead(t, c, seed) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// writeAndRead stores prompts of chunks of any size, and compares them with
// the stored ones.
func writeAndRead(t *testing.T, c *client.Client, seed uint64) error {
	rnd, w := rand.New(rand.NewPCG(seed, 1)), client.NewWriter(c)
	var all [][][]byte
	var under []*client.Storing
	for i := range 40 {
		chunks := make([][]byte, 1+rnd.IntN(6))
		sizes := make([]uint32, len(chunks))
		for k := range chunks {
			sizes[k] = uint32(1 + rnd.IntN(60*kib))
			chunks[k] = bytes.Repeat([]byte{byte(rnd.Uint32()), byte(i)}, int(sizes[k]))[:sizes[k]]
		}
		for { // the other writer may have the window
			s, err := w.Put(t.Context(), client.Chain(chain(seed<<32|uint64(i), len(chunks))), client.ReserveOptions{Sizes: sizes}, func(k int, dst []byte) error {
				if client.CopyTo(dst, chunks[k]) != len(dst) {
					return fmt.Errorf("chunk %d of %d bytes has room for %d", k, len(chunks[k]), len(dst))
				}
				return nil
			})
			under = append(under, s)
			if err == nil {
				break
			}
			if !errors.Is(err, client.ErrOverBudget) {
				return err
			}
		}
		all = append(all, chunks)
	}
	for i, s := range under {
		if _, err := s.Wait(t.Context()); err != nil {
			return fmt.Errorf("put %d: %w", i, err)
		}
	}
	for i, chunks := range all {
		job, err := c.Prefetch(t.Context(), client.Chain(chain(seed<<32|uint64(i), len(chunks))), client.PrefetchOptions{})
		if err != nil {
			return err
		}
		if _, err := job.Wait(t.Context(), client.All); err != nil {
			return err
		}
		if n, _ := job.Ready(); n != len(chunks) {
			return fmt.Errorf("prompt %d: %d chunks of %d are there", i, n, len(chunks))
		}
		for k, want := range chunks {
			if got, err := job.Chunk(t.Context(), k); err != nil || !bytes.Equal(got, want) {
				return fmt.Errorf("prompt %d, chunk %d: other bytes, %w", i, k, err)
			}
		}
		if err := job.Release(t.Context()); err != nil {
			return err
		}
	}
	return nil
}
