package server

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

// TestSpaceLog: against a list, in any order of puts, removals and bounds. One in ten is
// never removed for a bound.
func TestSpaceLog(t *testing.T) {
	type known struct {
		id    key.SpaceID
		space key.Space
		bytes int
	}
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s spaceLog
		var want []known
		index := func(id key.SpaceID) int { return slices.IndexFunc(want, func(k known) bool { return k.id == id }) }
		spared := func(id key.SpaceID) bool { return id[0]%10 == 0 }
		renew := func(id key.SpaceID) {
			s.renew(id)
			if i := index(id); i >= 0 {
				k := want[i]
				want = append(slices.Delete(want, i, i+1), k)
			}
		}
		for step := range 3000 {
			id := spaceNumber(rng.IntN(100))
			switch i := index(id); rng.IntN(8) {
			case 0:
				s.take(id)
				if i >= 0 {
					want = slices.Delete(want, i, i+1)
				}
			case 1:
				most := rng.IntN(30_000)
				s.trim(most, spared)
				for sum := func() (n int) {
					for _, k := range want {
						n += k.bytes
					}
					return n
				}; sum() > most; {
					i := slices.IndexFunc(want, func(k known) bool { return !spared(k.id) })
					if i < 0 {
						break
					}
					want = slices.Delete(want, i, i+1)
				}
				for _, k := range want {
					if spared(k.id) {
						renew(k.id) // as its close does, before it may go
					}
				}
			case 2:
				renew(id)
			default:
				if i >= 0 {
					continue // it is there
				}
				space := key.Space{Model: strings.Repeat("m", rng.IntN(500)), Revision: fmt.Sprint(step), World: 2, Worker: 1, DType: "d", ChunkTokens: 16, Method: "given:x"}
				if rng.IntN(2) == 0 {
					space.SaltDigest[3], space.Tags = byte(step), []key.Tag{{Name: "a", Value: "b"}}
				}
				before := s.bytes()
				s.put(id, &space)
				want = append(want, known{id, space, s.bytes() - before})
			}
			id = spaceNumber(rng.IntN(100))
			got, ok := s.get(id)
			if i := index(id); ok != (i >= 0) || ok && !reflect.DeepEqual(got, want[i].space) {
				t.Fatalf("seed %d, step %d: %+v, %t; place %d", seed, step, got, ok, i)
			}
			if len(s.at) != len(want) {
				t.Fatalf("seed %d, step %d: %d spaces, want %d", seed, step, len(s.at), len(want))
			}
			if most := 2 * (s.live + leastSpaceLog + 1000); cap(s.log) > most && step%100 == 99 {
				s.tidy(0)
				if cap(s.log) > most {
					t.Fatalf("seed %d, step %d: %d bytes for %d", seed, step, cap(s.log), s.live)
				}
			}
		}
	}
}

// TestCatalogLiesTogether: the memory of spaces that came amid much else does
// not keep the pages of the heap that this lay in.
func TestCatalogLiesTogether(t *testing.T) {
	inuse := func() int64 {
		var st runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&st)
		return int64(st.HeapInuse)
	}
	c, beside := newCatalog(), make([]string, 0, 1<<17)
	before := inuse()
	for i := range cap(beside) {
		name := []byte(strings.Repeat("m", 900))
		beside = append(beside, string(name))
		if i%16 == 0 {
			c.open(spaceNumber(i), key.Space{Model: string(name), World: 1, DType: "d", ChunkTokens: 16, Method: "given:x"}, nil)
		}
	}
	for i := 0; i < cap(beside); i += 16 {
		c.close(spaceNumber(i))
	}
	kept := c.mu.names.bytes()
	beside = nil
	if now := inuse(); now > before+3*maxCatalogBytes || kept < maxCatalogBytes/2 {
		t.Errorf("%d KiB of the heap are in use for %d KiB", (now-before)>>10, kept>>10)
	}
	runtime.KeepAlive(beside)
	runtime.KeepAlive(c)
}
