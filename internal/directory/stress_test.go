package directory

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/kvstored/kvstored/internal/raced"
	"github.com/kvstored/kvstored/key"
)

// The payload of a stress is one page of words, of which each is what its key and version
// say. A version that has left its place is overwritten there by another one.
const (
	stressWords = AlignBytes / 8
	stressArena = 1 << 20
	stressPages = stressArena / AlignBytes
	stressKeys  = 64
)

func wordOf(n, version uint64) uint64 { return n<<56 ^ version*0x9e3779b97f4a7c15 }

// stressed is an arena, written by this process or another one.
type stressed struct{ mem []byte }

func (s *stressed) word(off int64, i int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&s.mem[off+8*int64(i)]))
}

// write moves the keys of one writer from page to page until stop, with Clear before a page
// is used again.
func (s *stressed) write(d *Directory, w, writers int, stop func() bool) {
	r := rand.New(rand.NewPCG(uint64(w), 1))
	var free []int64
	for page := w; page < stressPages; page += writers {
		free = append(free, int64(page)*AlignBytes)
	}
	at := map[uint64]int64{}
	for version := uint64(1); !stop(); version++ {
		n := uint64(w + writers*r.IntN(stressKeys/writers))
		old, is := at[n]
		if is && r.IntN(2) == 0 { // removed, and its page is used at once
			d.Clear(numbered(n), old)
			free, is = append(free, old), false
		}
		to := free[len(free)-1]
		free = free[:len(free)-1]
		for i := range stressWords {
			s.word(to, i).Store(wordOf(n, version))
		}
		d.Put(numbered(n), to, AlignBytes, version)
		if is { // moved: Put has ended the old place
			free = append(free, old)
		}
		at[n] = to
	}
}

// read copies one chunk, and is an error where Holds says that wrong bytes are right.
func (s *stressed) read(r *Reader, n uint64, buf *[stressWords]uint64) (held bool, err error) {
	p, ok := r.Find(numbered(n))
	if !ok {
		return false, nil
	}
	for i := range buf {
		buf[i] = s.word(p.Offset, i).Load()
	}
	if !r.Holds(p) {
		return false, nil
	}
	for i, got := range buf {
		if want := wordOf(n, p.Sum); got != want {
			return true, fmt.Errorf("key %d at %d: word %d is %#x, want %#x", n, p.Offset, i, got, want)
		}
	}
	return true, nil
}

// readMany reads random keys until so many reads held.
func (s *stressed) readMany(r *Reader, seed uint64, holds int, stop func() bool) error {
	rng := rand.New(rand.NewPCG(seed, 2))
	var buf [stressWords]uint64
	for held := 0; held < holds && !stop(); {
		ok, err := s.read(r, rng.Uint64N(stressKeys), &buf)
		if err != nil {
			return err
		}
		if ok {
			held++
		}
	}
	return nil
}

// Readers beside writers that move, remove and overwrite: what Holds confirms is right.
func TestReadersBesideWriters(t *testing.T) {
	d, r := newPair(t, stressArena)
	s := &stressed{make([]byte, stressArena)}
	var done atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range 2 {
		writers.Go(func() { s.write(d, w, 2, done.Load) })
	}
	reads := 200_000
	if raced.On {
		reads = 3_000
	}
	for n := range uint64(2) {
		readers.Go(func() {
			if err := s.readMany(r, n, reads, func() bool { return false }); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	done.Store(true)
	writers.Wait()
}

// Void beside Clear: where Clear does nothing any more, because the directory has ended, no
// slot is found.
func TestVoidBesideClear(t *testing.T) {
	k := key.Key{Hash: key.Hash{1}}
	for range 20_000 {
		d, r := newPair(t, 1<<15)
		d.Put(k, 0, 8, 1)
		var voids sync.WaitGroup
		voids.Go(d.Void)
		for !d.done.Load() {
			runtime.Gosched()
		}
		if _, found := r.Find(k); found {
			t.Fatal("a slot is found that Clear does not clear")
		}
		voids.Wait()
	}
}
