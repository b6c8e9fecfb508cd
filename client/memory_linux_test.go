package client

import (
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/wire"
)

func newArena(t *testing.T) *arena.Arena {
	t.Helper()
	a, err := arena.New(arena.Options{CapacityBytes: 1 << 20, HugePages: "off"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func sealed(t *testing.T, a *arena.Arena, text string) (arena.Block, wire.Ref) {
	t.Helper()
	b, err := a.Alloc(len(text))
	if err != nil {
		t.Fatal(err)
	}
	b.SealSum(b.Write([]byte(text)))
	return b, wire.Ref{Offset: uint64(b.Offset()), Length: uint32(b.Len()), Sum: b.Sum()}
}

// TestSharedMemory reads hits where they lie and puts through a window, over
// descriptors of a real arena.
func TestSharedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		w, err := arena.NewWindow(1 << 16)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		b0, r0 := sealed(t, a, "first chunk")
		b1, r1 := sealed(t, a, "second chunk")
		defer b0.Release()
		defer b1.Release()
		s := inlineSetup()
		s.hello.Granted |= wire.FeatureArena | wire.FeatureStaging
		s.hello.ArenaBytes, s.hello.StagingBytes, s.hello.Puts = 1<<20, 1<<16, wire.PutStaged
		s.files = []*os.File{a.File(), w.File()}
		c := mustDial(t, s, func(f *fake) {
			f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Ready: ready(2), Refs: refs(r0, r1)}})
			var m wire.ReserveRequest
			r := f.expect(wire.OpReserve, &m)
			if m.Chain.Form != wire.FormRef || m.Chain.ID != 5 || m.First != 2 || m.Sizes.Len() != 1 {
				f.t.Errorf("request %+v", m)
			}
			f.reply(r, &wire.ReserveReply{Fill: 6, Code: StoppedNoSpace, Slots: wire.Slots(nil).
				Add(wire.Slot{Code: Exists, Length: 5}).Add(wire.Slot{Code: Granted, Length: 5, Offset: 4096})})
			var commit wire.FillRequest
			r = f.expect(wire.OpCommit, &commit)
			got := make([]byte, 5)
			if _, err := w.File().ReadAt(got, 4096); err != nil || string(got) != "third" || commit != (wire.FillRequest{Fill: 6, Count: 2}) {
				f.t.Errorf("request %+v, the window holds %q", commit, got)
			}
			f.reply(r, &wire.StoreReply{Results: wire.Results(nil).
				Add(wire.Stored{Code: ResultNotGranted}).Add(wire.Stored{Code: ResultStored, Sum: 9})})
			f.reply(f.next(), &wire.ReleaseReply{})
			f.drain()
		})
		if at := uintptr(unsafe.Pointer(&c.maps.mu.arena[0])); at%arena.HugeBytes != 0 {
			t.Errorf("the arena is mapped at %#x, where no huge page fits", at)
		}
		ctx := testContext(t)
		j, err := c.Prefetch(ctx, Tokens([]uint32{1}), PrefetchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if p, err := j.Chunk(ctx, 1); err != nil || string(p) != "second chunk" {
			t.Errorf("%q, %v", p, err)
		}
		buf := make([]byte, 64)
		if n, err := j.Copy(ctx, buf, 0); err != nil || string(buf[:n]) != "first chunk" {
			t.Errorf("%q, %v", buf[:n], err)
		}
		fill, err := c.Reserve(ctx, j.Prompt(), ReserveOptions{First: 2, Size: 5})
		if err != nil {
			t.Fatal(err)
		}
		if fill.Len() != 2 || fill.Reason() != StoppedNoSpace || fill.Status(0) != Exists || fill.Bytes(0) != nil {
			t.Errorf("%+v", fill)
		}
		copy(fill.Bytes(1), "third")
		results, err := fill.Commit(ctx)
		if err != nil || len(results) != 2 || results[1] != (Stored{Code: ResultStored, Sum: 9}) {
			t.Errorf("%+v, %v", results, err)
		}
		if err := j.Release(ctx); err != nil {
			t.Error(err)
		}
		c.Close()
		if fill.Bytes(1) != nil {
			t.Error("memory after Close")
		}
	})
}

// TestStartCommit: commits are on their way before a call waits for them.
func TestStartCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := windowed(t, func(f *fake, _ *arena.Window) {
			f.reply(f.next(), &wire.ReserveReply{Fill: 6, Slots: wire.Slots(nil).Add(wire.Slot{Length: 5}).Add(wire.Slot{Length: 5, Offset: 4096})})
			var asked [2]request
			for i := range asked {
				var commit wire.FillRequest
				asked[i] = f.expect(wire.OpCommit, &commit)
				if commit != (wire.FillRequest{Fill: 6, First: uint32(i), Count: 1}) {
					f.t.Errorf("commit %d: %+v", i, commit)
				}
			}
			for i, r := range asked {
				f.reply(r, &wire.StoreReply{Results: wire.Results(nil).Add(wire.Stored{Sum: uint64(i)})})
			}
			f.drain()
		})
		ctx := testContext(t)
		fill, err := c.Reserve(ctx, Tokens([]uint32{1, 2, 3, 4, 5}), ReserveOptions{Size: 5})
		if err != nil {
			t.Fatal(err)
		}
		commits := []*Commit{fill.StartCommit(ctx, 0, 1), fill.StartCommit(ctx, 1, 1)}
		for i, pending := range commits {
			got, err := pending.Wait(ctx)
			if err != nil || !slices.Equal(got, []Stored{{Sum: uint64(i)}}) {
				t.Errorf("commit %d: %+v, %v", i, got, err)
			}
		}
		if _, err := fill.StartCommit(ctx, 1, 2).Wait(ctx); !errors.Is(err, ErrBadRequest) {
			t.Errorf("beyond the fill: %v", err)
		}
	})
}

// TestOutsideTheMemory: offsets that would fault end the connection instead.
func TestOutsideTheMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newArena(t)
		for _, bad := range []wire.Ref{{Offset: 1 << 20, Length: 1}, {Offset: 1<<20 - 1, Length: 2}, {Offset: 1<<64 - 1, Length: 1}} {
			s := inlineSetup()
			s.hello.Granted |= wire.FeatureArena
			s.hello.ArenaBytes, s.files = 1<<20, []*os.File{a.File()}
			c := mustDial(t, s, func(f *fake) {
				f.reply(f.next(), &wire.PrefetchReply{Job: 5, State: wire.JobState{Code: wire.CodeRunning, Ready: ready(1), Refs: refs(bad)}})
				f.drain()
			})
			if _, err := c.Prefetch(testContext(t), Tokens([]uint32{1}), PrefetchOptions{}); !errors.Is(err, ErrProtocol) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
