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
func run(t *testing.T, l *index.Log, walk func(context.Context) error) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx, walk); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

func none(context.Context) error { return nil }

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{})
		run(t, l, none)
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
		l := index.NewLog(7, index.LogOptions{Interval: 10 * time.Millisecond})
		run(t, l, none)
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
		run(t, l, none)
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
		run(t, l, none)
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

// A log that is behind says Cleared, and then all that is there.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := index.NewLog(7, index.LogOptions{Pending: 8})
		walks := 0
		run(t, l, func(ctx context.Context) error {
			walks++
			for i := range byte(40) {
				if err := l.Room(ctx); err != nil {
					return err
				}
				l.Note(change(i))
			}
			return nil
		})
		for i := range byte(20) {
			l.Note(change(100 + i)) // Run has no turn in between
		}
		time.Sleep(time.Minute)
		var all []index.Change
		batches, _, _, _ := l.Read(nil, 0, 100)
		for _, b := range batches {
			all = append(all, b.Changes...)
		}
		if walks != 1 || len(all) != 41 || all[0].Kind != index.Cleared || all[1] != change(0) || all[40] != change(39) {
			t.Fatalf("%d walks, %d changes: %+v", walks, len(all), all)
		}
		if st := l.Stats(); st.Dropped != 12 || st.Restarts != 1 {
			t.Errorf("%+v", st)
		}
	})
}

func BenchmarkNote(b *testing.B) {
	l := index.NewLog(7, index.LogOptions{})
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx, none) })
	defer running.Wait()
	defer cancel()
	for b.Loop() {
		l.Note(index.Change{})
	}
}
