package blockio

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
)

// sheet is a file that notes its writes, each as "offset+length" in pages. The
// first waits for goOn. A write that has the page bad in it fails.
type sheet struct {
	File
	goOn    chan struct{}
	bad     int64 // 0 = none
	refuses bool  // several at once
	mu      sync.Mutex
	seen    []string
}

var errBadPage = errors.New("bad page")

func (s *sheet) note(off, n int64) error {
	s.mu.Lock()
	s.seen = append(s.seen, fmt.Sprintf("%d+%d", off/arena.AlignBytes, n/arena.AlignBytes))
	first := len(s.seen) == 1
	s.mu.Unlock()
	if first {
		<-s.goOn
	}
	if s.bad > 0 && off <= s.bad*arena.AlignBytes && s.bad*arena.AlignBytes < off+n {
		return errBadPage
	}
	return nil
}

func (s *sheet) WriteAt(p []byte, off int64) (int, error) { return s.WriteVAt([][]byte{p}, off) }

func (s *sheet) WriteVAt(ps [][]byte, off int64) (n int, err error) {
	for _, p := range ps {
		n += len(p)
	}
	if err := s.note(off, int64(n)); err != nil {
		return 0, err
	}
	if s.refuses && len(ps) > 1 {
		return 0, errors.ErrUnsupported
	}
	return n, nil
}

// writeAll queues transfers of pages {offset, length} behind one that is under
// way, and returns the error of each.
func writeAll(t *testing.T, s *sheet, pages [][2]int64) (errs []error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.goOn = make(chan struct{})
		d := New(1, time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- d.Run(ctx) }()
		var dones []chan error
		submit := func(off, n int64) {
			done := make(chan error, 1)
			dones = append(dones, done)
			x := &Transfer{File: s, Off: off * arena.AlignBytes, Buf: make([]byte, n*arena.AlignBytes), Write: true, End: told(done)}
			if err := d.Submit(x); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		submit(1000, PieceBytes/arena.AlignBytes)
		for _, p := range pages {
			submit(p[0], p[1])
		}
		close(s.goOn)
		for _, done := range dones[1:] {
			errs = append(errs, <-done)
		}
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		if _, writes, flying := d.Depths(); writes+flying+d.mu.weight != 0 {
			t.Errorf("%d transfers queued, %d pieces and %d bytes under way at the end", writes, flying, d.mu.weight)
		}
	})
	s.seen = s.seen[1:]
	return errs
}

func TestNeighboursAreWrittenTogether(t *testing.T) {
	for name, c := range map[string]struct {
		pages [][2]int64
		want  []string
	}{
		"in order":                   {[][2]int64{{0, 16}, {16, 16}, {32, 1}}, []string{"0+33"}},
		"out of order":               {[][2]int64{{0, 16}, {32, 1}, {16, 16}}, []string{"0+33"}},
		"a gap":                      {[][2]int64{{0, 16}, {17, 16}}, []string{"0+16", "17+16"}},
		"a stranger keeps its place": {[][2]int64{{0, 16}, {100, 1}, {16, 16}}, []string{"0+32", "100+1"}},
		"no more than a piece":       {[][2]int64{{0, 200}, {200, 56}, {256, 1}}, []string{"0+256", "256+1"}},
		"the rest of a large one":    {[][2]int64{{0, 300}, {300, 10}}, []string{"0+256", "256+54"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := new(sheet)
			for i, err := range writeAll(t, s, c.pages) {
				if err != nil {
					t.Errorf("transfer %d: %v", i, err)
				}
			}
			slices.Sort(s.seen) // requests that fit side by side begin in any order
			if !slices.Equal(s.seen, c.want) {
				t.Errorf("written %v, want %v", s.seen, c.want)
			}
		})
	}
}

// Of transfers that fail together each is told of itself.
func TestNeighboursFailAlone(t *testing.T) {
	s := &sheet{bad: 20}
	errs := writeAll(t, s, [][2]int64{{0, 16}, {16, 16}, {32, 1}})
	if errs[0] != nil || !errors.Is(errs[1], errBadPage) || errs[2] != nil {
		t.Errorf("got %v", errs)
	}
	if want := []string{"0+33", "0+16", "16+16", "32+1"}; !slices.Equal(s.seen, want) {
		t.Errorf("written %v, want %v", s.seen, want)
	}
}

// A file system that takes no joint requests is not asked for ever.
func TestRefusedTogether(t *testing.T) {
	s := &sheet{refuses: true}
	var pages [][2]int64
	for i := range int64(maxRefused + 20) { // a gap after each two
		pages = append(pages, [2]int64{i * 100, 1}, [2]int64{i*100 + 1, 1})
	}
	for i, err := range writeAll(t, s, pages) {
		if err != nil {
			t.Errorf("transfer %d: %v", i, err)
		}
	}
	joint := 0
	for _, w := range s.seen {
		if strings.HasSuffix(w, "+2") {
			joint++
		}
	}
	if singles := len(s.seen) - joint; singles != len(pages) || joint < maxRefused || joint >= maxRefused+smallPieces {
		t.Errorf("%d joint requests and %d single ones: %v", joint, singles, s.seen)
	}
}
