package index_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/index"
	"github.com/kvstored/kvstored/key"
)

func change(n byte) index.Change {
	return index.Change{Key: key.Key{Hash: key.Hash{n}}, Tokens: uint32(n)}
}

// run runs a log until the test ends.
func run(t *testing.T, l *index.Log) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{})
		run(t, l)
		for i := range byte(200) {
			l.Note(change(i))
			if i%50 == 49 {
				time.Sleep(time.Second)
			}
		}
		synctest.Wait()
		batches, next, lost, more := l.Read(nil, 0, 100)
		if lost || next != l.Next() || more == nil {
			t.Fatalf("lost %v, next %d of %d, more %v", lost, next, l.Next(), more)
		}
		at := byte(0)
		for i, b := range batches {
			if b.Seq != uint64(i) {
				t.Fatalf("batch %d has the number %d", i, b.Seq)
			}
			if cap(b.Changes) > len(b.Changes) {
				t.Fatalf("batch %d keeps room for %d changes, and has %d", i, cap(b.Changes), len(b.Changes))
			}
			for _, c := range b.Changes {
				if c != change(at) {
					t.Fatalf("change %d is %+v", at, c)
				}
				at++
			}
		}
		if at != 200 {
			t.Fatalf("%d changes of 200", at)
		}
		l.Note(change(1))
		<-more
		if got, _, _, _ := l.Read(nil, next, 1); len(got) != 1 || got[0].Seq != next {
			t.Fatalf("then came %+v", got)
		}
	})
}

// Changes that come within an interval are one batch, which comes no later.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{})
		run(t, l)
		for burst := range uint64(3) {
			begin := time.Now()
			_, _, _, more := l.Read(nil, burst, 1)
			for i := range byte(9) {
				l.Note(change(i))
				time.Sleep(time.Millisecond)
			}
			<-more
			got, next, _, _ := l.Read(nil, burst, 10)
			if took := time.Since(begin); took != 10*time.Millisecond || len(got) != 1 || len(got[0].Changes) != 9 || next != burst+1 {
				t.Fatalf("burst %d: after %v %d batches, %+v", burst, took, len(got), got)
			}
		}
	})
}

func TestSlowReaderLosesItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{Batches: 4})
		run(t, l)
		for i := range byte(10) {
			l.Note(change(i))
			time.Sleep(time.Second)
		}
		for _, from := range []uint64{0, 5, 11, 1 << 63} {
			if got, next, lost, _ := l.Read(nil, from, 10); !lost || next != 10 || len(got) != 0 {
				t.Errorf("from %d: %d batches, next %d, lost %v", from, len(got), next, lost)
			}
		}
		if got, next, lost, _ := l.Read(nil, 6, 3); lost || next != 9 || len(got) != 3 || got[0].Changes[0] != change(6) {
			t.Errorf("from 6: %+v, next %d, lost %v", got, next, lost)
		}
	})
}

func TestChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{Changes: 10})
		run(t, l)
		for i := range byte(5) {
			for range 4 {
				l.Note(change(i))
			}
			time.Sleep(time.Second)
		}
		if _, _, lost, _ := l.Read(nil, 2, 10); !lost {
			t.Error("12 changes are kept of 10 allowed")
		}
		if got, _, lost, _ := l.Read(nil, 3, 10); lost || len(got) != 2 {
			t.Errorf("%d batches, lost %v", len(got), lost)
		}
	})
}

// A flood within an interval is in full batches, numbered at once, and none of it is lost.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{})
		run(t, l)
		const n = 3*index.MaxBatch + 5
		for i := range n {
			l.Note(change(byte(i)))
		}
		if next := l.Next(); next != 3 {
			t.Errorf("%d batches before the interval is over, want 3", next)
		}
		time.Sleep(time.Second)
		got, _, lost, _ := l.Read(nil, 0, 10)
		at := 0
		for _, b := range got {
			for _, c := range b.Changes {
				if c != change(byte(at)) {
					t.Fatalf("change %d is %+v", at, c)
				}
				at++
			}
		}
		if st := l.Stats(); lost || at != n || st.Noted != n || st.Next != 4 {
			t.Errorf("%d changes, lost %v, %+v", at, lost, st)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	l := index.NewLog(7, index.LogOptions{})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for b.Loop() {
		l.Note(index.Change{})
	}
}
