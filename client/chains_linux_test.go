package client

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

// TestKeptBytes: a lookup and a reservation of 512 chunks of a kept prompt take at most
// 60 % of the bytes of version 1, which sent 20 bytes a chunk with each.
func TestKeptBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const chunks = 512
		total := make(chan int, 1)
		c := windowed(t, func(f *fake, _ *arena.Window) {
			var lookup wire.LookupRequest
			r := f.expect(wire.OpLookup, &lookup)
			f.reply(r, &wire.LookupReply{})
			bytes := len(r.body)
			var reserve wire.ReserveRequest
			r = f.expect(wire.OpReserve, &reserve)
			f.reply(r, &wire.ReserveReply{Code: wire.CodeOK})
			if lookup.Chain.ID == 0 || reserve.Chain.Form != wire.FormKept || reserve.Chain.ID != lookup.Chain.ID {
				f.t.Errorf("%+v after %d", reserve.Chain, lookup.Chain.ID)
			}
			total <- bytes + len(r.body) + 2*wire.HeaderBytes
		})
		lengths := make([]uint32, chunks)
		for i := range lengths {
			lengths[i] = 4
		}
		p := Hashes(16, make([]byte, 16*chunks), lengths).Kept()
		if _, err := c.Lookup(t.Context(), p, 0); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Reserve(t.Context(), p, ReserveOptions{Size: 1 << 20}); err != nil {
			t.Fatal(err)
		}
		now, then := <-total, 2*(wire.HeaderBytes+16+20*chunks)+3+19
		if t.Logf("%d bytes, %d in version 1", now, then); now*100 > then*60 {
			t.Errorf("%d bytes, %d in version 1", now, then)
		}
	})
}

// TestKeptIsSentAgain: what the daemon does not keep any more is sent once more, by the
// number that it had; and no number is ever that of another chain.
func TestKeptIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := make(map[uint64]byte)
		c := mustDial(t, inlineSetup(), func(f *fake) {
			last := make(map[uint64]byte) // as a daemon that keeps one chain
			for {
				var m wire.LookupRequest
				r := f.next()
				if r.Op == 0 {
					return
				}
				if err := m.Decode(r.body); err != nil {
					f.t.Error(err)
				}
				if m.Chain.Form == wire.FormKept {
					if last[m.Chain.ID] == 0 {
						f.refuse(r, ErrUnknownChain, "it is not kept")
						continue
					}
				} else if first := m.Chain.Hashes[0]; m.Chain.ID != 0 {
					if was := seen[m.Chain.ID]; was != 0 && was != first {
						f.t.Errorf("chain %d was that of %d, and is that of %d", m.Chain.ID, was, first)
					}
					seen[m.Chain.ID] = first
					last = map[uint64]byte{m.Chain.ID: first}
				}
				f.reply(r, &wire.LookupReply{Worth: uint32(last[m.Chain.ID])})
			}
		})
		var prompts []Prompt
		for i := range 2*wire.KeptChains + 3 {
			raw := make([]byte, 16)
			raw[0] = byte(i + 1)
			prompts = append(prompts, Hashes(16, raw, []uint32{4}).Kept())
		}
		for range 2 {
			for i, p := range prompts {
				for _, p := range []Prompt{p, p} {
					if m, err := c.Lookup(t.Context(), p, 0); err != nil || m.Worth != i+1 {
						t.Errorf("prompt %d: it is taken for %d, %v", i+1, m.Worth, err)
					}
				}
			}
		}
		p := prompts[0]
		p.SkipChunks = -1
		if _, err := c.Lookup(t.Context(), p, 0); !errors.Is(err, ErrBadRequest) {
			t.Error(err)
		}
	})
}
