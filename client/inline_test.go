package client

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/zeebo/xxh3"

	"github.com/kvstored/kvstored/internal/wire"
	"github.com/kvstored/kvstored/key"
)

// TestFillInline: the same code that fills shared memory works without.
func TestFillInline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), &wire.LookupReply{Match: wire.Match{Total: ready(1)}})
			var m wire.PutRequest
			r := f.expect(wire.OpPut, &m)
			if m.First != 1 || string(m.Payloads) != "bbcc" || !slices.Equal(m.Sizes.Append(nil), []uint32{2, 2}) {
				f.t.Errorf("request %+v", m)
			}
			f.reply(r, &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{Sum: 1}).Add(wire.Stored{Code: ResultDiffers, Sum: 2})})
			f.drain()
		})
		ctx := testContext(t)
		fill, err := c.Reserve(ctx, Tokens(make([]uint32, 14)), ReserveOptions{Size: 2})
		if err != nil {
			t.Fatal(err)
		}
		if fill.Len() != 3 || fill.Status(0) != Exists || fill.Status(1) != Granted {
			t.Fatalf("%+v", fill.slots)
		}
		copy(fill.Bytes(1), "bb")
		copy(fill.Bytes(2), "cc")
		got, err := fill.Commit(ctx)
		want := []Stored{{Code: ResultNotGranted}, {Code: ResultStored, Sum: 1}, {Code: ResultDiffers, Sum: 2}}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
		if fill.Bytes(1) != nil {
			t.Error("memory after Commit")
		}
		if _, err := fill.CommitRange(ctx, 2, 5, nil); !errors.Is(err, ErrBadRequest) {
			t.Errorf("beyond the fill: %v", err)
		}
	})
}

func TestGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := []byte("alpha"), []byte("be")
		reply := &wire.GetReply{
			Chunks:   wire.Chunks(nil).Add(wire.Chunk{Length: 5, Tokens: 4, Sum: xxh3.Hash(a)}).Add(wire.Chunk{Length: 2, Tokens: 3, Sum: xxh3.Hash(b)}),
			Payloads: slices.Concat(a, b),
		}
		c := mustDial(t, inlineSetup(), func(f *fake) {
			f.reply(f.next(), reply)
			reply.Payloads[6] ^= 1
			f.reply(f.next(), reply)
			f.drain()
		})
		p := Hashes(8, make([]byte, 16), []uint32{4, 3})
		got, err := c.Get(testContext(t), p, GetOptions{})
		if err != nil || len(got) != 2 || !bytes.Equal(got[0].Bytes, a) || !bytes.Equal(got[1].Bytes, b) || got[1].Tokens != 3 {
			t.Errorf("%+v, %v", got, err)
		}
		got, err = c.Get(testContext(t), p, GetOptions{})
		if !errors.Is(err, ErrCorrupt) || len(got) != 1 {
			t.Errorf("%d chunks of which one is corrupt, %v", len(got), err)
		}
	})
}

// TestPutIsSplit: payloads that do not fit one request go in several.
func TestPutIsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inlineSetup()
		s.hello.MaxPayload = 10
		c := mustDial(t, s, func(f *fake) {
			for _, want := range []struct{ first, n int }{{3, 2}, {5, 1}} {
				var m wire.PutRequest
				r := f.expect(wire.OpPut, &m)
				if int(m.First) != want.first || m.Sizes.Len() != want.n {
					f.t.Errorf("first %d, %d payloads", m.First, m.Sizes.Len())
				}
				var rs wire.Results
				for range want.n {
					rs = rs.Add(wire.Stored{})
				}
				f.reply(r, &wire.StoreReply{Results: rs})
			}
			f.drain()
		})
		got, err := c.Put(testContext(t), Tokens([]uint32{1}), 3, [][]byte{make([]byte, 4), make([]byte, 6), make([]byte, 1)})
		if err != nil || len(got) != 3 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestRefusedHere: what cannot be right is not sent.
func TestRefusedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inlineSetup()
		s.hello.MaxRequest, s.hello.MaxPayload = 1000, 100
		c := mustDial(t, s, (*fake).pong)
		ctx := testContext(t)
		lookup := func(p Prompt) error { _, err := c.Lookup(ctx, p, 0); return err }
		put := func(first, size int) error {
			_, err := c.Put(ctx, Tokens(nil), first, [][]byte{make([]byte, size)})
			return err
		}
		reserve := func(o ReserveOptions) error { _, err := c.Reserve(ctx, Tokens(nil), o); return err }
		for name, tt := range map[string]struct{ err, want error }{
			"long prompt":   {lookup(Tokens(make([]uint32, 1000))), ErrTooLarge},
			"width":         {lookup(Hashes(7, nil, nil)), ErrBadRequest},
			"hashes":        {lookup(Hashes(8, make([]byte, 9), []uint32{1})), ErrBadRequest},
			"skip":          {lookup(Prompt{SkipChunks: -1}), ErrBadRequest},
			"empty payload": {put(0, 0), ErrTooLarge},
			"large payload": {put(0, 101), ErrTooLarge},
			"first":         {put(-1, 1), ErrBadRequest},
			"no size":       {reserve(ReserveOptions{}), ErrTooLarge},
			"count":         {reserve(ReserveOptions{Size: 1, Count: -1}), ErrBadRequest},
		} {
			if !errors.Is(tt.err, tt.want) {
				t.Errorf("%s: got %v, want %v", name, tt.err, tt.want)
			}
		}
		if err := c.Ping(ctx); err != nil {
			t.Error(err)
		}
	})
}

func TestNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := inlineSetup()
		s.options.Space, s.hello.HasSpace = nil, false
		c := mustDial(t, s, func(f *fake) {
			f.reply(f.next(), &wire.OpenSpaceReply{Space: wire.SpaceInfo{Handle: 9, ChunkTokens: 4}})
			var m wire.LookupRequest
			r := f.expect(wire.OpLookup, &m)
			if m.Chain.Space != 9 || m.Chain.Form != wire.FormHashes || !bytes.Equal(m.Chain.Hashes, bytes.Repeat([]byte{7}, 16)) {
				f.t.Errorf("request %+v", m)
			}
			f.reply(r, &wire.LookupReply{})
			f.drain()
		})
		ctx := testContext(t)
		p := Chain(&key.Chain{Hashes: []key.Hash{key.Hash(bytes.Repeat([]byte{7}, 16))}, Tokens: []uint32{4}})
		if _, err := c.Lookup(ctx, p, 0); !errors.Is(err, ErrUnknownSpace) {
			t.Errorf("got %v", err)
		}
		space, err := c.OpenSpace(ctx, testSpace)
		if err != nil {
			t.Fatal(err)
		}
		p.Space = space
		if _, err := c.Lookup(ctx, p, 0); err != nil {
			t.Error(err)
		}
	})
}
