package server

import (
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/kvstored/kvstored/key"
)

func spaceNumber(i int) (id key.SpaceID) {
	binary.LittleEndian.PutUint32(id[:], uint32(i))
	return id
}

// look is what a catalog knows of a space.
func (c *catalog) look(id key.SpaceID) (u struct {
	Connections uint32
	Space       key.Space
}) {
	u.Connections, u.Space = c.listed(id).connections, c.space(id)
	return u
}

// TestCatalogIsBounded: spaces that no connection has open make room, the longest
// closed first; one that is open stays.
func TestCatalogIsBounded(t *testing.T) {
	c := newCatalog()
	space := key.Space{Model: strings.Repeat("m", 1000), Salt: "secret"}
	c.open(spaceNumber(1), space, nil)
	c.open(spaceNumber(1), space, nil)
	c.close(spaceNumber(1))
	one := (&listedSpace{space: &space}).bytes()
	fit := maxCatalogBytes / one
	for i := 2; i < 3*fit; i++ {
		c.open(spaceNumber(i), space, nil)
		c.close(spaceNumber(i))
		if i > 2 {
			c.open(spaceNumber(2), space, nil) // used all the time, though not open
			c.close(spaceNumber(2))
		}
	}
	if n := len(c.ids()); n != fit || c.mu.bytes != fit*one {
		t.Errorf("%d spaces with %d bytes; %d fit", n, c.mu.bytes, fit)
	}
	for i, want := range map[int]bool{1: true, 2: true, 3: false, 3*fit - 1: true} {
		if u := c.look(spaceNumber(i)); (u.Space.Model != "") != want || u.Space.Salt != "" {
			t.Errorf("space %d: %+v", i, u.Space)
		}
	}
	if u := c.look(spaceNumber(1)); u.Connections != 1 {
		t.Errorf("%d connections have the first open, want 1", u.Connections)
	}
}

// TestCatalogIsFull: what does not fit while everything is open is only
// counted, and remembered once it is opened where there is room.
func TestCatalogIsFull(t *testing.T) {
	c := newCatalog()
	space := key.Space{Model: strings.Repeat("m", 1000)}
	fit := maxCatalogBytes / (&listedSpace{space: &space}).bytes()
	for i := range fit {
		if !c.open(spaceNumber(i), space, nil) {
			t.Fatalf("space %d of %d has no room", i, fit)
		}
	}
	over := spaceNumber(fit)
	if c.open(over, space, nil) {
		t.Error("what does not fit is news")
	}
	if u := c.look(over); u.Space.Model != "" || u.Connections != 1 || len(c.ids()) != fit+1 {
		t.Errorf("without room: %+v, %d connections, %d spaces", u.Space, u.Connections, len(c.ids()))
	}
	c.close(spaceNumber(0))
	c.open(over, space, nil)
	if u := c.look(over); u.Space.Model == "" || u.Connections != 2 {
		t.Errorf("with room: %+v, %d connections", u.Space, u.Connections)
	}
	c.open(spaceNumber(0), space, nil)
	c.close(spaceNumber(0))
	if ids := c.ids(); len(ids) != fit || slices.Contains(ids, spaceNumber(0)) {
		t.Errorf("a space that is not remembered is listed among %d", len(ids))
	}
}

// A catalog that once had very many spaces takes no more memory than one that never
// had them, and knows all that are left.
func TestCatalogShrinks(t *testing.T) {
	const many = 200_000
	c := newCatalog()
	heap := func() uint64 {
		var st runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&st)
		return st.HeapAlloc
	}
	before := heap()
	for i := range many {
		c.open(spaceNumber(i), key.Space{Model: "m"}, nil)
	}
	for i := 1; i < many; i++ {
		c.close(spaceNumber(i))
	}
	if now := heap(); now > before+2*maxCatalogBytes {
		t.Errorf("%d KiB stay of %d spaces; the bound is %d", (now-before)>>10, many, maxCatalogBytes>>10)
	}
	if s := c.space(spaceNumber(0)); s.Model != "m" {
		t.Errorf("the space that is open is %+v", s)
	}
	if n := len(c.ids()); n > maxCatalogBytes/spaceBytes || n < 1000 {
		t.Errorf("%d spaces are left", n)
	}
	runtime.KeepAlive(c)
}

// TestCatalogKeepsFewPages: spaces that came amid much else keep not many more of the pages
// of the heap that this lay in than they are counted for.
func TestCatalogKeepsFewPages(t *testing.T) {
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
	kept := c.mu.bytes
	beside = nil
	if now := inuse(); now > before+3*maxCatalogBytes || kept < maxCatalogBytes/2 {
		t.Errorf("%d KiB of the heap are in use for %d KiB", (now-before)>>10, kept>>10)
	}
	runtime.KeepAlive(beside)
	runtime.KeepAlive(c)
}
